"""One plan's program on the simulated fabric: from the host's recorded dispatches to a Run."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.errors import RankDied
from harness.fabric.afterwards import afterwards
from harness.fabric.cached_rank import CachedRank
from harness.fabric.carrier import exclusive, start_watchdog
from harness.fabric.frames import user_frame
from harness.fabric.lanes import EVENT_SECONDS
from harness.fabric.memory import DTYPE_NAME, ITEMSIZE, Buffer, Region
from harness.fabric.simulated import EVENTS_MAX, Chooser, Lane, Simulation
from harness.fabric.simulated_rank import RankState, SimulatedRank
from harness.fabric.tensors import Watching
from harness.fabric.windows import SharedWindows
from harness.host import HostProgram, HostWindow, World
from harness.interpose import Interposer, Operation
from harness.plan import Fault, Hold, Preempt, Visibility
from harness.record import Blocked, Failure, Run, Starved, WindowRecord


@dataclass(slots=True)
class Job:
    """What a fabric is asked to run. host: called with the world; returns what to observe.

    event_seconds: how far the virtual clock goes on with each event. caches: what cores' caches do.
    watch: look at every torch operation for uses of tensors that are in flight. threads: each lane runs
    on an OS thread of its own (fabric/threads.py).
    """

    ranks: int
    host: Callable[[World], Any]
    faults: Sequence[Fault] = ()
    schedule: Sequence[Hold | Preempt] = ()
    eager: bool = False
    torn: int = 0
    caches: Visibility | None = None
    watch: bool = False
    threads: bool = False
    device_ids: Sequence[int] | None = None
    chooser: Chooser | None = None
    guide: Callable[[int], int] | None = None
    events_max: int = EVENTS_MAX
    event_seconds: float = EVENT_SECONDS
    derived: list[Preempt] = field(default_factory=list)


def execute(job: Job) -> Run:
    """Run the job; repeated with generators by rank when its programs turn out to draw numbers."""
    with exclusive:
        start_watchdog()
        # Programs on threads draw random numbers as a rule (a model's weights): no run without first.
        run, drew = _once(job, swapping=job.threads)
        if drew and not job.threads:
            run, _ = _once(job, swapping=True)
    return run


def _once(job: Job, *, swapping: bool) -> tuple[Run, bool]:
    chooser = job.chooser
    if swapping and chooser is not None:
        chooser.restart()
    simulation = Simulation(
        job.ranks, schedule=job.schedule, eager=job.eager, chooser=chooser, guide=job.guide,
        torn=job.torn, swapping=swapping, threaded=job.threads, events_max=job.events_max,
        event_seconds=job.event_seconds,
    )

    def on_fire(index: int, op: Operation) -> None:
        lane = next(
            (lane.index for lane in simulation.lanes
             if (lane.rank, lane.worker) == (op.rank, op.lane)),
            max(op.rank, 0),
        )
        simulation.events.append((lane, "fault", -1, op.rank, index, index, None, -1, None, -1))

    interposer = Interposer(job.faults, on_fire) if job.faults else None
    world = World(job.ranks, job.device_ids, interposer)
    windows = SharedWindows(job.ranks)
    ranks = [RankState() for _ in range(job.ranks)]
    dispatched: list[list[int]] = []
    observed: Any = None
    program: HostProgram | None = None
    blocked: list[Blocked] = []
    starved: list[Starved] = []

    def when_blocked() -> None:
        blocked.extend(
            blocked_lane(lane, simulation, windows)
            for lane in simulation.lanes
            if lane.stuck and lane not in simulation.polled and not simulation.idles(lane)
        )
        starved.extend(found for ask in simulation.starved if (found := ask()) is not None)
        # A program that was not written for us keeps state that no probe could put back.
        probes = not (simulation.failures or simulation.dead or simulation.polled or job.threads)
        if probes:
            following = afterwards(simulation, windows, ranks, interposer, dispatched)
            for entry in blocked:
                entry.afterwards = following.get(entry.lane, entry.afterwards)

    with simulation.ambient as ambient:
        if swapping:
            ambient.enter(job.ranks)
        try:
            observed = job.host(world)
            program = world.finished()
        except Exception as error:
            code, lasti = user_frame(error)
            text = "".join(traceback.format_exception(error))
            simulation.failures.append(Failure(-1, -1, 0, error, text, code, lasti, "host"))
        if program is not None:
            _add_memory(program, windows)
            _add_lanes(program, simulation, ranks, windows, interposer, dispatched, job.caches)
            with Watching(simulation) if job.watch else nullcontext():
                simulation.run(when_blocked)
            if simulation.uses:
                for lane in simulation.lanes:
                    simulation.end_uses(lane)
    job.derived = simulation.derived
    simulation.number_anew(blocked)
    run = finished(job, simulation, ranks, windows, world, observed, interposer, blocked)
    run.dispatched, run.starved = dispatched, starved
    _left_by_frontends(run, ranks, simulation)
    drew = simulation.ambient.drew
    simulation.release()
    for state in ranks:  # they know their lanes, which know them
        state.lanes.clear()
    return run, drew


def _add_memory(program: HostProgram, windows: SharedWindows) -> None:
    """Windows first, under their own numbers, then the prepared host tensors."""
    for window in program.windows:
        regions = [Region(window.nbytes, zero=window.zero) for _ in range(program.size)]
        for region, content in zip(regions, program.held.get(window.number, ()), strict=False):
            kept = min(len(content), region.nbytes)
            region.view[region.base : region.base + kept] = content[:kept]
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


def _add_lanes(
    program: HostProgram, simulation: Simulation, ranks: list[RankState], windows: SharedWindows,
    interposer: Interposer | None, dispatched: list[list[int]], caches: Visibility | None,
) -> None:
    """The world's lanes, in order."""
    kind: Callable[..., SimulatedRank] = SimulatedRank
    if caches is not None:
        kind = functools.partial(CachedRank, caches)
    for index, worker in _lanes(program):
        began: list[int] = []
        dispatched.append(began)
        rank = kind(
            index, program.size, interposer, simulation, windows, len(simulation.lanes), ranks[index]
        )
        queue = rank_queue(rank, program, windows, interposer, began)
        rank._lane = lane = simulation.add_lane(queue, index, worker)
        if worker and all(getattr(one.program, "rests", False) for one in program.queues[index]):
            lane.rests, lane.enabled = True, False
            lane.blocked_on = ("idle", None, -1)


def _lanes(program: HostProgram) -> list[tuple[int, int]]:
    """Rank and worker of every lane: as many as the rank's widest dispatch needs."""
    if not program.lanes:
        return [(rank, 0) for rank in range(program.size)]
    return [
        (rank, worker)
        for rank in range(program.size)
        for worker in range(program.lanes.get(rank, 1))
    ]


def rank_queue(
    rank: SimulatedRank, program: HostProgram, windows: SharedWindows,
    interposer: Interposer | None, dispatched: list[int],
) -> Callable[[], Any]:
    """A lane of a rank: its dispatches, one after the other; returns their results.

    dispatched: filled with the event before which each dispatch began.
    """
    numbers = {key: len(program.windows) + i for i, key in enumerate(program.prepared)}

    def bind(value: Any) -> Any:
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
        queue = program.queues[rank.index]
        for number, dispatch in enumerate(queue):
            dispatched.append(len(rank._events))
            rank.lanes = dispatch.lanes
            if rank.lane < dispatch.lanes:
                results.append(dispatch.program(rank, *map(bind, dispatch.args)))
                if rank._lane.dying:  # its program swallowed its own death
                    raise RankDied
                if interposer is not None:
                    interposer.at_end(rank.index, rank.lane)
            else:
                results.append(None)
            if len(rank._state.lanes) > 1 and number + 1 < len(queue):
                rank.join(number)
        return results

    return run


def blocked_lane(lane: Lane, simulation: Simulation, windows: SharedWindows) -> Blocked:
    """What a lane that never ended waits for, and where."""
    pending, reason = lane.stopped or (lane.pending, lane.blocked_on)
    if reason is None:
        kind, window, _, lo, _ = (*pending, -1, 0, 0, 0)[:5]
        at = lo // ITEMSIZE[windows.names[window][3]] if window >= 0 else 0
        last = next((e for e in reversed(simulation.events) if e[0] == lane.index and e[8]), None)
        code, lasti = (None, -1) if last is None else last[8:]
        return Blocked(lane.index, lane.rank, str(kind), window, at, 0, 0, "poll", code, lasti, lo=lo)
    if reason[0] == "wait":
        _, number, slot, value, reached, at, code, lasti = reason
        held = windows.regions[number][lane.rank].cells[slot]
        return Blocked(
            lane.index, lane.rank, "wait", number, at, value, held, ">=" if reached else "==", code,
            lasti, lo=4 * slot - windows.regions[number][lane.rank].base,
        )
    if reason[0] == "meet":
        _, key, needed, members, code, lasti = reason
        arrived = simulation.arrived(key)
        return Blocked(
            lane.index, lane.rank, str(pending[0]), pending[1], 0, needed, arrived, ">=",
            code, lasti, f"{key[0]} {key[-1]}", group=members,
        )
    code, lasti = reason[-2:]
    return Blocked(
        lane.index, lane.rank, str(reason[0]), -1, 0, 0, lane.outstanding, "==", code, lasti,
        detail=(
            f"{reason[2]} #{reason[1]}" if reason[0] == "work"
            else reason[1].told(lane) if reason[0] == "lock" else ""
        ),
        holder=reason[1].holder_for(lane) if reason[0] == "lock" else -1,
    )


def memory_records(windows: SharedWindows, ranks: int) -> list[WindowRecord]:
    """What the record says of every window, buffer and host tensor."""
    records = []
    for number, (kind, name, shape, dtype) in enumerate(windows.names):
        regions = windows.regions[number]
        owners = [len(regions) - 1]
        if kind == "window":
            owners = [rank for rank in range(ranks) if regions[rank] is not None]
        parts = {owner: regions[owner] for owner in owners}
        broken = []
        for owner, region in parts.items():
            offset = region.broken_guard()
            if offset is not None:
                broken.append((owner, offset))
        records.append(
            WindowRecord(
                number, name, kind, shape, DTYPE_NAME[dtype], region.nbytes, ITEMSIZE[dtype], parts,
                broken,
            )
        )
    return records


def _programs(program: HostProgram) -> list[Any]:
    """By dispatch, what each rank ran; empty where there is one dispatch only."""
    if len(program.queues[0]) < 2:
        return []
    return list(zip(*([one.program for one in queue] for queue in program.queues), strict=False))


def _results(simulation: Simulation, ranks: int) -> list[Any]:
    """By rank, what its dispatches returned: a value each, or a list of one a lane; None if not all
    lanes ended."""
    if len(simulation.lanes) == ranks or any(lane.thread for lane in simulation.lanes):
        return [lane.result for lane in simulation.lanes[:ranks]]
    results: list[list[Any]] = [[] for _ in range(ranks if simulation.lanes else 0)]
    for lane in simulation.lanes:
        if lane.state != "new" and (lane.blocked_on is None or lane.blocked_on[0] != "idle"):
            results[lane.rank].append(lane.result)
    return [
        None if not lanes or any(result is None for result in lanes)
        else lanes[0] if len(lanes) == 1
        else [list(one) for one in zip(*lanes, strict=True)]
        for lanes in results
    ]


def _left_by_frontends(run: Run, ranks: Sequence[RankState], simulation: Simulation) -> None:
    """Add to the record what a program of frontends/ has left with its ranks."""
    notes = [rank.notes for rank in ranks]
    run.notes = notes if any(notes) else []
    if simulation.threaded:
        run.threads = {lane.index: lane.thread for lane in simulation.lanes if lane.thread}
        run.raised = {lane.index: lane.raised for lane in simulation.lanes if lane.raised}
        if run.threads:
            run.by_main = [rank.printed.of_main if rank.printed else "" for rank in ranks]
        run.torch_calls = [rank.torch_calls for rank in ranks]
        run.torch_waits = {number: at for rank in ranks for number, at in rank.torch_waits.items()}
        run.printed = [rank.printed.text if rank.printed else "" for rank in ranks]


def finished(
    job: Job, simulation: Simulation, ranks: list[RankState], windows: SharedWindows,
    world: World, observed: Any, interposer: Interposer | None, blocked: list[Blocked],
) -> Run:
    """The record of a world that has come to its end."""
    return Run(
        ranks=job.ranks,
        lanes=[(lane.rank, lane.worker) for lane in simulation.lanes]
        or [(rank, 0) for rank in range(job.ranks)],
        raw=simulation.events,
        awaited=simulation.awaited,
        sources=simulation.sources,
        fetched=simulation.fetched,
        memory=functools.partial(memory_records, windows, job.ranks),
        guards_intact=windows.intact(),
        results=_results(simulation, job.ranks),
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
        livelock=[blocked_lane(lane, simulation, windows) for lane in simulation.polled],
        touched=simulation.touched,
        programs=_programs(world.recorded),
        faults=tuple(job.faults),
        private=[p.name for p in world.recorded.prepared.values() if p.private is not None],
    )

