"""What a rank's process does: it waits for plans, and for each runs its host program and its lanes.

The host program runs in every process of a world, so that each has its own queue of dispatches with the
functions in it: it must do nothing but record (allocate, prepare, dispatch), and do so alike each time.
The contents of host tensors come from the harness's own run of it: shared ones lie in the arena, private
ones (a tensor whose sharing was missing) are copies in this process's own memory.

A world that the zygote forked finds scenarios, mutants and faults by name, as the harness does
(registry.py), and is kept from plan to plan. A world forked by the harness itself for one plan has them
already. Not modelled: host programs that keep state of their own between plans.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness import registry
from harness.ambient import Ambient, generator
from harness.checkers.failures import where
from harness.errors import EngineError, OperationError, PeerLost, RankDied, Unwound
from harness.fabric.arena import Arena, ArenaWindows, Telling
from harness.fabric.execute import rank_queue
from harness.fabric.frames import PACKAGE
from harness.fabric.lanes import Lane
from harness.fabric.memory import Region
from harness.fabric.rank_engine import COMMAND, DONE, EXIT, PLAN, RankEngine, ToldCalls
from harness.fabric.rank_lanes import RankLanes
from harness.fabric.rank_natural import NaturalEngine
from harness.fabric.simulated_rank import RankState, SimulatedRank
from harness.host import HostProgram, World
from harness.interpose import Interposer, Operation
from harness.plan import Fault, decode_wire, from_wire
from harness.record import Failure
from harness.zygote import leave

ENDED_STATES = ("returned", "raised", "dead", "peer_lost", "unwound")


@dataclass(frozen=True, slots=True)
class Part:
    """One plan, as a rank's process is asked to run its part of it.

    workers: how many lanes each rank has. seed: of natural order; None = conducted. layout: kind,
    offset and bytes of the host's memory by number, and for private tensors the offset of what to copy.
    """

    host: Callable[[World], Any]
    workers: Sequence[int]
    faults: Sequence[Fault]
    device_ids: Sequence[int] | None
    torn: int
    seed: int | None
    layout: Sequence[tuple[str, int, int]]


def begin(value: list[int], fds: list[int]) -> None:
    """The body of a rank's process in a warm world. value: its rank, and how many ranks the arena has
    room for. fds: arena, commands, wakes."""
    rank, room = value
    arena = Arena(fds[0], room)
    os.write(fds[2], b"b")
    while True:
        command, _, length, _ = COMMAND.unpack(_exactly(fds[1], COMMAND.size))
        if command == EXIT:
            return
        assert command == PLAN
        asked = marshal.loads(_exactly(fds[1], length))
        with contextlib.ExitStack() as stack:
            part = _named(asked, stack)
            perform(part, arena, rank, fds[1], fds[2])


def _exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = os.read(fd, count - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def _named(asked: dict[str, Any], stack: contextlib.ExitStack) -> Part:
    """The part that a message describes, its mutant planted while `stack` is open."""
    sys.path[:] = asked["path"]
    os.chdir(asked["folder"])
    wire = decode_wire(asked["plan"])
    scenario = registry.find(wire.scenario)
    plan = from_wire(wire, scenario.params, registry.faults())
    mutant = registry.mutant_of(scenario, plan.bug)
    if mutant is not None:
        stack.enter_context(mutant.planted())
    return Part(
        lambda world: scenario.host(world, plan.params), asked["workers"], plan.faults,
        asked["device_ids"], plan.visibility.torn, asked["seed"], asked["layout"],
    )


def perform(part: Part, arena: Arena, rank: int, commands: int, wakes: int) -> None:
    """Run one rank's part of a plan; returns when the harness says that the plan is done."""
    telling = Telling(arena, rank)
    engine: RankEngine
    told = arena, rank, part.workers, telling, commands, wakes
    if part.seed is None:
        engine = RankEngine(*told, torn=part.torn)
    else:
        pauses = generator("natural", part.seed, rank)
        engine = NaturalEngine(*told, torn=part.torn, pauses=pauses)
    engine.windows = ArenaWindows(arena, rank, engine.size, telling)
    program = _Program(part, engine, telling)
    first = engine.lanes[0]
    with Ambient(engine.sleep, engine.clock, swapping=True, real=engine.natural) as ambient:
        engine.carried = RankLanes(engine.lanes, ambient, program.run)
        program.make(ambient)
        first.state = "running"
        program.run(first)
        while engine.serve(first) != DONE:
            pass
        engine.carried.end()
    os.write(wakes, b"z")


class _Program:
    """A rank's program of one plan: made by the host program, run lane by lane, and its end told."""

    _ambient: Ambient

    def __init__(self, part: Part, engine: RankEngine, telling: Telling) -> None:
        self._part = part
        self._engine = engine
        self._telling = telling
        self._hosting = True
        self.interposer = Interposer(part.faults, self._on_fire, real=True) if part.faults else None

    def _on_fire(self, index: int, op: Operation) -> None:
        if not self._hosting:  # the harness's own run of the host program tells those
            owner = self._engine.lanes[op.lane].index
            self._engine.events.append(
                (owner, "fault", -1, op.rank, index, index, None, -1, None, -1)
            )
            self._telling.flush()  # it may end the process

    def make(self, ambient: Ambient) -> None:
        """Give each lane its program, from this process's own run of the host program."""
        self._ambient = ambient
        try:
            self._made(ambient)
        except Exception as error:  # each lane says so, when it is its turn
            for lane in self._engine.lanes:
                lane.program = functools.partial(_fails, error)

    def run(self, lane: Lane) -> None:
        """A lane's program from its start to its end, which is told."""
        engine = self._engine
        result: Any = None
        try:
            if not (engine.natural and lane.worker):  # those are started by the first one
                engine.serve(lane)  # until it is this lane's turn to start
            if not lane.worker:
                self._strike()
                self._ambient.enter(lane.stream)
            result = lane.program()
            if lane.dying:
                raise RankDied
            state = "unwound" if lane.state == "unwinding" else "returned"
        except BaseException as error:
            state = self._raised(lane, error)
        finally:
            engine._arena.order.give_all()
        data = b""
        if state == "returned":
            try:
                data = pickle.dumps(result)
            except Exception as error:
                text = f"rank {engine.rank}: its result cannot leave its process: {error}"
                state = self._failed(lane, OperationError(text))
        lane.state = state
        self._telling.tell("end", lane.worker, state, data)
        self._over(lane)

    def _over(self, lane: Lane) -> None:
        """A lane has ended; in natural order the first one waits for the rank's others."""
        engine = self._engine
        if engine.natural and not lane.worker:
            engine.flush()
        engine.end_probe()
        engine.end_uses(lane)
        for one in engine.touched:
            self._telling.tell(
                "touched", one.number, one.at, one.stage, one.before, one.after, one.writes, one.by,
                one.lane, self._telling.code(one.code), one.lasti,
            )
        engine.touched.clear()
        if all(one.state in ENDED_STATES for one in engine.lanes):
            engine.tell_seen()
        if not engine.natural or not lane.worker:
            engine.answer()

    def _strike(self) -> None:
        """Faults that hit the process before its program begins."""
        for index, fault in enumerate(self._part.faults):
            if fault.starts and fault.rank == self._engine.rank:
                self._on_fire(index, Operation("start", fault.rank, self._engine.size, {}))
                fault.deed()()

    def _made(self, ambient: Ambient) -> None:
        engine, part = self._engine, self._part
        world = World(engine.size, part.device_ids, self.interposer)
        ambient.enter(engine.size)
        part.host(world)
        program = world.finished()
        self._bind(program)
        self._hosting = False
        if self.interposer is not None:
            engine.seen = self.interposer.seen = [0] * len(part.faults)
            self.interposer.fired = [0] * len(part.faults)
        state = RankState()
        state.calls = ToldCalls(self._telling)
        simulation: Any = engine
        for lane in engine.lanes:
            rank = SimulatedRank(
                engine.rank, engine.size, self.interposer, simulation, engine.windows, lane.index, state
            )
            rank._lane = lane
            began = _Began(self._telling, lane.worker)
            lane.program = rank_queue(rank, program, engine.windows, self.interposer, began)

    def _bind(self, program: HostProgram) -> None:
        """The host's windows and tensors, where the harness has laid them."""
        engine, layout = self._engine, self._part.layout
        arena = engine._arena
        prepared = list(program.prepared.values())
        if len(layout) != len(program.windows) + len(prepared):
            raise EngineError("the host program did otherwise in a rank's process than in the harness")
        for number, (kind, at, nbytes) in enumerate(layout):
            regions: Any
            if number < len(program.windows):
                window = program.windows[number]
                step = nbytes
                regions = [
                    arena.region(at + rank * step, window.nbytes) for rank in range(engine.size)
                ]
                engine.windows.know(number, "window", window.name, window.shape, window.dtype, regions)
                continue
            one = prepared[number - len(program.windows)]
            region = arena.region(at, nbytes, guards=False)
            if kind == "private":  # memory that no other process sees
                region = Region.within(
                    memoryview(bytearray(region.view)), nbytes, zero=None, guards=False
                )
            tensor = one.tensor
            engine.windows.know(
                number, "host tensor", one.name, tuple(tensor.shape), tensor.dtype, [region] * engine.size
            )

    def _raised(self, lane: Lane, error: BaseException) -> str:
        """A program ended with an error: its own, the world's or the harness's; tell it."""
        if lane.state == "unwinding" or isinstance(error, Unwound):
            return "unwound"
        if lane.dying or isinstance(error, RankDied):
            self._event(lane, "crash")
            return "dead"
        if isinstance(error, PeerLost):
            return "peer_lost"
        if isinstance(error, Exception):
            return self._failed(lane, error)
        if lane.worker:  # the stack of its greenlet ends here, and the process with it
            leave(error)
        raise error  # SystemExit, say: a process that leaves is a process that ends

    def _failed(self, lane: Lane, error: BaseException) -> str:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith(PACKAGE)
        ]
        text = "".join(traceback.format_list(frames)) + "".join(
            traceback.format_exception_only(error)
        )
        failure = Failure(lane.index, lane.rank, 0, error, text, None, -1, "raise")
        code, lasti, operation = where(failure)
        try:
            data = pickle.dumps(error)
            pickle.loads(data)
        except Exception:
            data = pickle.dumps(OperationError(f"{type(error).__name__}: {error}"))
        told = self._telling
        told.tell("failure", lane.worker, data, text, told.code(code), lasti, operation)
        self._event(lane, "raise")
        return "raised"

    def _event(self, lane: Lane, kind: str) -> None:
        self._engine.events.append((lane.index, kind, -1, lane.rank, 0, 0, None, -1, None, -1))


def _fails(error: Exception) -> None:
    raise error


class _Began(list[int]):
    """Where each dispatch of a lane began, in its rank's own events; told."""

    def __init__(self, telling: Telling, worker: int) -> None:
        super().__init__()
        self._telling = telling
        self._worker = worker

    def append(self, index: int) -> None:
        """Tell it."""
        super().append(index)
        self._telling.tell("began", self._worker, index)
