"""What blocked lanes would do next: the difference between a cycle and a notify that nobody makes.

When a world has stopped, each blocked lane in turn goes on alone as if what it waits for had come,
until it blocks again or 200 events have passed. Its operations are issued and never delivered; what
they would notify is kept, then memory, counters and the record are put back as the run left them.
Output is discarded. Not modelled: what the lane would read, had the others really moved (values
stay as they are), and what it would do after its next wait.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness.interpose import Interposer
from harness.record import CALLED, Afterwards, RawEvent

if TYPE_CHECKING:
    from harness.fabric.simulated import Lane, Simulation
    from harness.fabric.simulated_rank import RankState
    from harness.fabric.windows import SharedWindows


def afterwards(
    simulation: Simulation, windows: SharedWindows, ranks: list[RankState],
    interposer: Interposer | None, dispatched: list[list[int]],
) -> dict[int, Afterwards]:
    """The next steps of every lane that is blocked in an operation, by lane."""
    found: dict[int, Afterwards] = {}
    blocked = [
        lane for lane in simulation.lanes
        if lane.stuck and lane.blocked_on is not None
    ]
    for lane in simulation.lanes:
        if lane.state == "running":
            lane.stopped = (lane.pending, lane.blocked_on)
    silence = io.StringIO()
    lists = [*dispatched, *(one for rank in ranks for one in (rank.calls, rank.notes))]
    for lane in blocked:
        with (
            _put_back(simulation, windows, lists, interposer),
            contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence),
        ):
            found[lane.index] = _one(simulation, lane)
    return found


def _one(simulation: Simulation, lane: Lane) -> Afterwards:
    start = len(simulation.events)
    simulation.probe(lane)
    return next_steps(simulation.events[start:], lane.index, str(lane.pending[0]))


def next_steps(events: list[RawEvent], owner: int, pending: str) -> Afterwards:
    """What a lane's own events among `events`, and what it announced last, say of its next steps."""
    own = [event for event in events if event[0] == owner]
    following = own[1:]  # the first is the end of what it is blocked in
    kinds = {event[1] for event in following} | {pending}
    notifies = {event[2:5] for event in following if event[1] in ("notify", "signal")}
    arrives = {
        (event[1], event[6] or ()) for event in following
        if event[1] in ("sync_arrive", "window_arrive", "join_arrive")
    }
    return Afterwards(
        frozenset(CALLED.get(kind, kind) for kind in kinds), frozenset(notifies), frozenset(arrives)
    )


@contextlib.contextmanager
def _put_back(
    simulation: Simulation, windows: SharedWindows, lists: list[list[Any]],
    interposer: Interposer | None,
) -> Iterator[None]:
    """Undo what a probe does to the run. lists: what else it may append to."""
    memory = [(region, bytes(region.view), region.freed) for region in windows]
    counts = (simulation.issued, simulation.points, simulation.applied)
    lengths = (
        len(simulation.events), len(simulation.failures), len(simulation.dead),
        len(simulation.peers_lost), len(windows.names),
    )
    more = list(map(len, lists))
    arrivals, releases = dict(simulation._arrivals), list(simulation._releases)
    faults = (list(interposer.seen), list(interposer.fired)) if interposer else ([], [])
    ended = {lane.index for lane in simulation.lanes if lane.state != "running"}
    try:
        yield
    finally:
        for region, data, freed in memory:
            region.view[:] = data
            region.freed = freed
        simulation.issued, simulation.points, simulation.applied = counts
        simulation._arrivals, simulation._releases = arrivals, releases
        for kept, length in zip(
            (simulation.events, simulation.failures, simulation.dead, simulation.peers_lost,
             windows.names),
            lengths, strict=True,
        ):
            del kept[length:]  # type: ignore[attr-defined]
        del windows.regions[lengths[-1] :]
        for one, length in zip(lists, more, strict=True):
            del one[length:]
        if interposer:
            interposer.seen[:], interposer.fired[:] = faults
        for lane in simulation.lanes:
            if lane.index not in ended and lane.state != "running":
                lane.state, lane.result, lane.failure = "unwound", None, None
