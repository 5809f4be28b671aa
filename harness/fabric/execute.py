"""One plan's program on the simulated fabric: from the host's recorded dispatches to a Run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.ambient import Ambient
from harness.errors import PeerLost
from harness.fabric.carrier import start_watchdog
from harness.fabric.memory import Buffer, Region
from harness.fabric.simulated import EVENTS_MAX, Chooser, Lane, Simulation, _user_frame
from harness.fabric.simulated_rank import SharedWindows, SimulatedRank
from harness.host import Dispatch, HostProgram, HostWindow, World
from harness.interpose import Interposer, Operation
from harness.plan import Fault, Hold, Preempt
from harness.record import Blocked, Failure, Run, WindowRecord


@dataclass(slots=True)
class Job:
    """What a fabric is asked to run. host: called with the world; returns what to observe."""

    ranks: int
    host: Callable[[World], Any]
    faults: Sequence[Fault] = ()
    schedule: Sequence[Hold | Preempt] = ()
    eager: bool = False
    device_ids: Sequence[int] | None = None
    chooser: Chooser | None = None
    guide: Callable[[int], int] | None = None
    events_max: int = EVENTS_MAX
    derived: list[Preempt] = field(default_factory=list)


def execute(job: Job) -> Run:
    """Run the job; repeated with generators by rank when its programs turn out to draw numbers."""
    start_watchdog()
    run, drew = _once(job, swapping=False)
    if drew:
        run, _ = _once(job, swapping=True)
    return run


def _once(job: Job, *, swapping: bool) -> tuple[Run, bool]:
    chooser = job.chooser
    if swapping and hasattr(chooser, "restart"):
        chooser.restart()  # type: ignore[union-attr]
    simulation = Simulation(
        job.ranks, schedule=job.schedule, eager=job.eager, chooser=chooser, guide=job.guide,
        events_max=job.events_max, swapping=swapping,
    )

    def on_fire(index: int, op: Operation) -> None:
        simulation.events.append(
            (max(op.rank, 0), "fault", -1, op.rank, index, index, None, -1, None, -1)
        )

    interposer = Interposer(job.faults, on_fire) if job.faults else None
    world = World(job.ranks, job.device_ids, interposer)
    windows = SharedWindows(job.ranks)
    ranks = [
        SimulatedRank(index, job.ranks, interposer, simulation, windows)
        for index in range(job.ranks)
    ]
    observed: Any = None
    program: HostProgram | None = None
    drew = False
    try:
        with Ambient(lambda _: None, lambda: 0.0, swapping=True) as ambient:
            if swapping:
                ambient.enter(job.ranks)
            observed = job.host(world)
            program = world.finished()
        drew = ambient.drew
    except Exception as error:
        code, lasti = _user_frame(error)
        simulation.failures.append(
            Failure(-1, 0, error, "".join(traceback.format_exception(error)), code, lasti, "host")
        )
    if program is not None:
        _add_memory(program, windows)
        for rank in ranks:
            rank._lane = simulation.add_lane(_queue(rank, program, windows, interposer))
        simulation.run()
        drew = drew or simulation.ambient.drew
    job.derived = simulation.derived
    return _finish(job, simulation, ranks, windows, world, observed, interposer), drew


def _add_memory(program: HostProgram, windows: SharedWindows) -> None:
    """Windows first, under their own numbers, then the prepared host tensors."""
    for window in program.windows:
        regions = [Region(window.nbytes, zero=window.zero) for _ in range(program.size)]
        windows.add("window", window.name, window.shape, window.dtype, regions)
    for prepared in program.prepared.values():
        regions = (
            [Region.over(prepared.tensor)] * program.size
            if prepared.private is None
            else [Region.over(prepared.private.clone()) for _ in range(program.size)]
        )
        windows.add(
            "host tensor", prepared.name, tuple(prepared.tensor.shape), prepared.tensor.dtype,
            regions,
        )


def _queue(
    rank: SimulatedRank, program: HostProgram, windows: SharedWindows,
    interposer: Interposer | None,
) -> Callable[[], Any]:
    """The lane of a rank: its dispatches, one after the other; returns their results."""
    numbers = {key: len(program.windows) + i for i, key in enumerate(program.prepared)}

    def bind(value: Any, index: int) -> Any:
        if isinstance(value, HostWindow):
            if interposer is None:
                return rank.bind(value.number, value.shape, value.dtype, value.offset)
            return interposer.perform(
                Operation("bind", rank.index, rank.size, {"window": value, "byte_offset": 0}),
                lambda window, byte_offset: rank.bind(
                    window.number, window.shape, window.dtype, window.offset
                ).shifted(byte_offset),
            )
        if isinstance(value, torch.Tensor):
            number = numbers[id(value)]
            return Buffer(
                number, windows.names[number][1], windows.regions[number], rank.index,
                tuple(value.shape), value.dtype,
            )
        return value

    def run() -> Any:
        results = []
        for dispatch in program.queues[rank.index]:
            args = [bind(value, index) for index, value in enumerate(dispatch.args)]
            results.append(_call(dispatch, rank, args))
            if interposer is not None:
                interposer.at_end(rank.index)
        return results

    return run


def _call(dispatch: Dispatch, rank: SimulatedRank, args: list[Any]) -> Any:
    return dispatch.program(rank, *args)


def _blocked(lane: Lane, simulation: Simulation, windows: SharedWindows) -> Blocked:
    reason = lane.blocked_on
    if reason is None or lane.parked:
        kind, window, peer, lo, _ = (*lane.pending, -1, 0, 0, 0)[:5]
        return Blocked(lane.index, str(kind), window, lo, 0, 0, "poll", None, -1)
    if reason[0] == "wait":
        _, number, slot, value, reached, at, code, lasti = reason
        held = windows.regions[number][lane.index].cells[slot]
        return Blocked(
            lane.index, "wait", number, at, value, held, ">=" if reached else "==", code, lasti
        )
    if reason[0] == "meet":
        _, key, code, lasti = reason
        arrived = simulation.arrived(key)
        return Blocked(
            lane.index, str(lane.pending[0]), lane.pending[1], 0, simulation.size, arrived, ">=",
            code, lasti, f"{key[0]} {key[1]}",
        )
    return Blocked(lane.index, str(reason[0]), -1, 0, 0, lane.outstanding, "==", None, -1)


def _finish(
    job: Job, simulation: Simulation, ranks: list[SimulatedRank], windows: SharedWindows,
    world: World, observed: Any, interposer: Interposer | None,
) -> Run:
    records = []
    for number, (kind, name, shape, dtype) in enumerate(windows.names):
        regions = windows.regions[number]
        owners = range(job.ranks) if kind == "window" else [len(regions) - 1]
        broken = []
        final: list[bytes | None] = [None] * job.ranks
        nbytes = regions[owners[-1]].nbytes
        for owner in owners:
            region = regions[owner]
            final[owner] = region.payload() if nbytes <= 1 << 16 else None
            offset = region.broken_guard()
            if offset is not None:
                broken.append((owner, offset))
        itemsize = torch.empty((), dtype=dtype).element_size()
        records.append(
            WindowRecord(number, name, kind, shape, str(dtype)[6:], nbytes, itemsize, final, broken)
        )
    blocked = [
        _blocked(lane, simulation, windows)
        for lane in simulation.lanes
        if lane.state == "unwound" and lane not in simulation.polled
    ]
    if simulation.ended == "overrun":
        blocked = []
    return Run(
        ranks=job.ranks,
        raw=simulation.events,
        names=records,
        results=[lane.result for lane in simulation.lanes],
        observed=observed,
        expected=None,
        failures=sorted(simulation.failures, key=lambda failure: failure.clock),
        blocked=blocked,
        dead=simulation.dead,
        peers_lost=simulation.peers_lost,
        fired=interposer.fired if interposer else [],
        seen=interposer.seen if interposer else [],
        deviations_applied=simulation.applied,
        calls=[rank.calls for rank in ranks],
        points=simulation.points,
        operations=simulation.issued,
        ended=simulation.ended,
        livelock=[_blocked(lane, simulation, windows) for lane in simulation.polled],
        private=[p.name for p in world.recorded.prepared.values() if p.private is not None],
    )


__all__ = ["Job", "PeerLost", "execute"]
