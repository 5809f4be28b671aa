"""The processes fabric: one real process a rank, windows in shared memory, the same programs.

`execute` runs a plan's host program in the harness, lays its windows and tensors into shared memory
(arena.py) and has the processes of a world (crew.py) run the rank programs, either conducted, operation
by operation as the plan's schedule says (conductor.py), or in natural order from a seed (natural.py). The
record is of the same form as a simulated one, so checkers, findings and reports are the same.

Where the ranks find the program: a scenario that the registry knows, by name or file, with faults and a
mutant that it knows, runs on warm processes that are started once (crew.py); each of them imports it by
itself and runs its host program too (rank_process.py). Any other (defined inside a function, changed by
a test) is run by processes forked from the harness for that one plan, which is refused if they are to
start in another way. The first costs about a millisecond a plan, the second a fork a rank.

The visibility switches torn, eager and relaxed mean what they mean in simulation. Not modelled: lanes of
a rank that run at the same moment (rank_lanes.py), simulated disks and host programs whose result is
judged without a reference (NotYet), CUDA windows, a world larger than one machine.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import torch

from harness import registry
from harness.ambient import Ambient, now
from harness.errors import NotYet, UsageError
from harness.fabric import crew as crews
from harness.fabric.arena import Arena, region_bytes
from harness.fabric.carrier import exclusive
from harness.fabric.conductor import Conductor
from harness.fabric.crew import Crew
from harness.fabric.execute import Job, blocked_lane, finished
from harness.fabric.frames import user_frame
from harness.fabric.intake import Intake
from harness.fabric.memory import Region
from harness.fabric.natural import Natural
from harness.fabric.rank_engine import PLAN
from harness.fabric.rank_process import Part, perform
from harness.fabric.windows import SharedWindows
from harness.host import HostProgram, World
from harness.interpose import Interposer, Operation
from harness.plan import Plan, encode
from harness.record import Blocked, Failure, Run
from harness.scenario import Scenario
from harness.supervise import Deadline, Limits

Layout = list[tuple[str, int, int]]


def execute(
    plan: Plan, scenario: Scenario, job: Job, *, seed: int | None = None, limits: Limits | None = None,
    start: str = "fork",
) -> Run:
    """Run the job on real processes. seed: of natural order; None = conducted. start: one of
    supervise.STARTS."""
    if not sys.platform.startswith("linux"):
        raise UsageError(f"the processes fabric needs Linux; this is {sys.platform}")
    if scenario.reference is None:
        raise NotYet(
            f"scenario {scenario.name}: its host program is judged by what it keeps in the harness's "
            "memory; such scenarios run on the simulated fabric only"
        )
    hosted = _Hosted(job)
    if hosted.program is None:
        return hosted.record(Conductor(None, hosted.workers, len(job.faults)))  # type: ignore[arg-type]
    limits = limits or Limits()
    with exclusive:
        if _known(plan, scenario):
            return _warm(plan, job, hosted, seed, limits, start)
        if start != "fork":
            raise UsageError(
                f"start={start!r}: a process that does not begin as a copy of this one imports its "
                f"program, and {scenario.name} cannot be imported by name as it is here (it is defined "
                "inside a function, changed since it was loaded, or has a fault that the registry does "
                "not know); write it at the top level of a file, or use start='fork'"
            )
        return _cold(job, hosted, seed, limits)


def _warm(
    plan: Plan, job: Job, hosted: _Hosted, seed: int | None, limits: Limits, start: str
) -> Run:
    """On processes that are kept, which find everything by its name."""
    crew = crews.warm(plan.ranks, start)
    crew.arena.reset()
    asked = marshal.dumps({
        "plan": encode(plan), "path": sys.path, "folder": os.getcwd(), "seed": seed,
        "device_ids": job.device_ids and tuple(job.device_ids), "workers": hosted.workers,
        "layout": hosted.lay(crew.arena),
    })
    try:
        run = hosted.run(crew, seed, limits, asked)
    except BaseException:  # Ctrl-C, say: nobody knows where they stand
        crew.wedge()
        raise
    crew.finish(plan.ranks)
    return run


def _cold(job: Job, hosted: _Hosted, seed: int | None, limits: Limits) -> Run:
    """On processes that are forked from this one for this plan."""
    crew = Crew(job.ranks)
    try:
        crew.arena.reset()
        layout = hosted.lay(crew.arena)
        part = Part(job.host, hosted.workers, job.faults, job.device_ids, job.torn, seed, layout)
        crew.start(lambda rank, commands, wakes: perform(part, crew.arena.again(), rank, commands, wakes))
        return hosted.run(crew, seed, limits)
    finally:
        crew.close()


def _known(plan: Plan, scenario: Scenario) -> bool:
    """Whether another process finds the same scenario, mutant and faults by their names."""
    try:
        found = registry.find(plan.scenario)
    except UsageError:
        return False
    faults = registry.faults()
    return found == scenario and all(
        faults.get(fault.tag()) is type(fault) for fault in plan.faults
    )


class _Hosted:
    """A plan whose host program has run in the harness."""

    def __init__(self, job: Job) -> None:
        self.job = job
        fired: list[tuple[int, int]] = []
        self.fired = fired  # faults of the host program: which, at which rank

        def on_fire(index: int, op: Operation) -> None:
            fired.append((index, op.rank))

        self.interposer = Interposer(job.faults, on_fire, real=True) if job.faults else None
        self.world = World(job.ranks, job.device_ids, self.interposer)
        self.observed: Any = None
        self.program: HostProgram | None = None
        self.failure: Failure | None = None
        self._laid: list[tuple[int, torch.Tensor, Region]] = []
        self._layout: Layout = []
        with Ambient(_no_sleep, _no_clock, swapping=True) as ambient:
            ambient.enter(job.ranks)
            try:
                self.observed = job.host(self.world)
                self.program = self.world.finished()
            except Exception as error:
                code, lasti = user_frame(error)
                text = "".join(traceback.format_exception(error))
                self.failure = Failure(-1, -1, 0, error, text, code, lasti, "host")

    @property
    def workers(self) -> list[int]:
        """How many lanes each rank has."""
        several = self.program.lanes if self.program is not None else {}
        return [several.get(rank, 1) for rank in range(self.job.ranks)]

    def lay(self, arena: Arena) -> Layout:
        """Lay windows and host tensors into the arena; what is where, by number."""
        assert self.program is not None
        for window in self.program.windows:
            step = region_bytes(window.nbytes)
            _, at = arena.take(self.program.size * step)
            for rank in range(self.program.size):
                arena.region(at + rank * step, window.nbytes, zero=window.zero)
            self._layout.append(("window", at, step))
        for one in self.program.prepared.values():
            held = one.tensor if one.private is None else one.private
            source = Region.over(held)
            number, at = arena.take(source.nbytes)
            region = arena.region(at, source.nbytes, guards=False)
            region.view[:] = source.view.cast("B")
            if one.private is None:
                self._laid.append((number, one.tensor, region))
            self._layout.append(("shared" if one.private is None else "private", at, source.nbytes))
        return self._layout

    def run(self, crew: Crew, seed: int | None, limits: Limits, asked: bytes = b"") -> Run:
        """Have the crew run it. asked: the plan, for processes that must be told it."""
        job = self.job
        kind = Conductor if seed is None else Natural
        engine = kind(
            crew.arena, self.workers, len(job.faults), schedule=job.schedule, eager=job.eager,
            chooser=job.chooser, guide=job.guide, events_max=job.events_max,
        )
        engine.ranks = crew
        crew.deadline = Deadline(limits, now() + limits.hunt)
        crew.begin()
        self._enter(engine, crew.arena)
        if asked:
            for rank in range(job.ranks):
                crew.send(rank, PLAN, len(asked))
                crew.members[rank].send(asked)
        engine.run()
        job.derived = engine.derived
        blocked = [
            blocked_lane(lane, engine, engine.windows) for lane in engine.lanes  # type: ignore[arg-type]
            if lane.state == "running" and lane not in engine.polled
        ] if engine.ended != "overrun" else []
        if not (engine.failures or engine.dead or engine.polled):
            following = engine.afterwards()
            for entry in blocked:
                entry.afterwards = following.get(entry.lane, entry.afterwards)
        livelock = [
            blocked_lane(lane, engine, engine.windows) for lane in engine.polled  # type: ignore[arg-type]
        ]
        kept = engine.keep_memory()
        engine.stop()
        for number, tensor, region in self._laid:  # what the host program sees
            own = Region.over(tensor)
            own.view.cast("B")[:] = region.view
            kept.regions[number] = [own] * engine.size
        run = self.record(engine, kept, blocked, livelock)
        for index, fault in enumerate(job.faults):
            if engine.fired[index] and "simulated" not in fault.fabrics:
                crew.members[fault.rank].wedged = True  # limits and slowness stay with a process
        self._laid.clear()
        engine.release()
        run.printed = [crew.printed(rank) for rank in range(engine.size)]
        return run

    def _enter(self, engine: Intake, arena: Arena) -> None:
        """The host's memory and the faults that fired in it."""
        assert self.program is not None
        prepared = list(self.program.prepared.values())
        for number, (kind, at, nbytes) in enumerate(self._layout):
            if kind == "window":
                window = self.program.windows[number]
                regions = [arena.region(at + rank * nbytes, window.nbytes) for rank in range(engine.size)]
                engine.know(number, kind, window.name, window.shape, window.dtype, regions)
            else:
                one = prepared[number - len(self.program.windows)]
                region = arena.region(at, nbytes, guards=False)
                engine.know(
                    number, "host tensor", one.name, tuple(one.tensor.shape), one.tensor.dtype,
                    [region] * engine.size,
                )
        for index, rank in self.fired:
            engine.events.append((max(rank, 0), "fault", -1, rank, index, index, None, -1, None, -1))
            engine.fired[index] += 1

    def record(
        self, engine: Intake, kept: SharedWindows | None = None, blocked: Sequence[Blocked] = (),
        livelock: Sequence[Blocked] = (),
    ) -> Run:
        """The run's record."""
        if self.failure is not None:
            engine.failures.append(self.failure)
            engine.lanes.clear()
            for index, rank in self.fired:
                engine.events.append((max(rank, 0), "fault", -1, rank, index, index, None, -1, None, -1))
                engine.fired[index] += 1
        if self.interposer is not None:
            engine.seen = [a + b for a, b in zip(engine.seen, self.interposer.seen, strict=True)]
        engine.touched.sort(key=lambda touched: touched.at)  # each rank told its own at its end
        polled, engine.polled = engine.polled, []
        counts: Any = engine  # an Intake counts faults as an interposer does
        run = finished(
            self.job, counts, counts.tellers, kept or SharedWindows(engine.size), self.world,
            self.observed, counts if self.job.faults else None, list(blocked),
        )
        engine.polled = polled
        run.livelock = list(livelock)
        run.dispatched = [  # a dispatch begins right after its rank's last event
            [teller.indexes[own - 1] + 1 if own else teller.started for own in began]
            for teller in engine.tellers if self.failure is None for began in teller.began
        ]
        return run


def _no_sleep(seconds: float) -> None:
    """A host program that sleeps costs nothing."""


def _no_clock() -> float:
    return 0.0


atexit.register(crews.cool)
