"""What a rank's process does: it waits for plans, and for each runs its host program and its rank.

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
from harness.fabric.memory import Region
from harness.fabric.rank_engine import COMMAND, DONE, EXIT, PLAN, RankEngine, ToldCalls
from harness.fabric.simulated_rank import RankState, SimulatedRank
from harness.host import HostProgram, World
from harness.interpose import Interposer, Operation
from harness.plan import Fault, decode_wire, from_wire
from harness.record import Failure


@dataclass(frozen=True, slots=True)
class Part:
    """One plan, as a rank's process is asked to run its part of it.

    seed: of natural order; None = conducted. layout: kind, offset and bytes of the host's memory by
    number, and for private tensors the offset of what to copy.
    """

    host: Callable[[World], Any]
    size: int
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
    while True:
        command, length, _ = COMMAND.unpack(_exactly(fds[1], COMMAND.size))
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
        lambda world: scenario.host(world, plan.params), plan.ranks, plan.faults, asked["device_ids"],
        plan.visibility.torn, asked["seed"], asked["layout"],
    )


def perform(part: Part, arena: Arena, rank: int, commands: int, wakes: int) -> None:
    """Run one rank's part of a plan; returns when the harness says that the plan is done."""
    telling = Telling(arena, rank)
    pauses = None if part.seed is None else generator("natural", part.seed, rank)
    size = part.size
    engine = RankEngine(arena, rank, size, telling, commands, wakes, torn=part.torn, pauses=pauses)
    engine.windows = ArenaWindows(arena, rank, size, telling)
    program = _Program(part, engine, telling)
    with Ambient(engine.sleep, engine.clock, swapping=True, real=engine.natural) as ambient:
        program.run(ambient)
    if engine.natural:
        engine.flush()
    engine.tell_seen()
    _tell_touched(engine, telling)
    engine.answer()
    while engine.serve()[0] != DONE:
        pass
    os.write(wakes, b"z")


def _tell_touched(engine: RankEngine, telling: Telling) -> None:
    engine.end_uses(engine.lane)
    for one in engine.touched:
        telling.tell(
            "touched", one.number, one.at, one.stage, one.before, one.after, one.writes, one.by,
            telling.code(one.code), one.lasti,
        )


class _Program:
    """A rank's program of one plan: made by the host program, run, and its end told."""

    def __init__(self, part: Part, engine: RankEngine, telling: Telling) -> None:
        self._part = part
        self._engine = engine
        self._telling = telling
        self._hosting = True
        self.interposer = Interposer(part.faults, self._on_fire, real=True) if part.faults else None

    def _on_fire(self, index: int, op: Operation) -> None:
        if not self._hosting:  # the harness's own run of the host program tells those
            self._engine.events.append(
                (self._engine.rank, "fault", -1, op.rank, index, index, None, -1, None, -1)
            )
            self._telling.flush()  # it may end the process

    def run(self, ambient: Ambient) -> None:
        """From the host program to the end of the rank's."""
        engine = self._engine
        lane = engine.lane
        result: Any = None
        try:
            lane.program = self._made(ambient)
            engine.lanes = [lane]
            engine.current = lane
            engine._enabled_lanes = 1
            lane.state = "running"
            engine.serve()  # until it is this rank's turn to start
            self._strike()
            ambient.enter(engine.rank)
            result = lane.program()
            if lane.dying:
                raise RankDied
            state = "unwound" if engine.stopping else "returned"
        except BaseException as error:
            state = self._raised(error)
        finally:
            engine._arena.order.give_all()
        lane.state = state
        if state == "returned":
            try:
                data = pickle.dumps(result)
            except Exception as error:
                text = f"rank {engine.rank}: its result cannot leave its process: {error}"
                lane.state = state = self._failed(OperationError(text))
                data = b""
            self._telling.tell("end", state, data)
        else:
            self._telling.tell("end", state, b"")

    def _strike(self) -> None:
        """Faults that hit the process before its program begins."""
        for index, fault in enumerate(self._part.faults):
            if fault.starts and fault.rank == self._engine.rank:
                self._on_fire(index, Operation("start", fault.rank, self._engine.size, {}))
                fault.deed()()

    def _made(self, ambient: Ambient) -> Callable[[], Any]:
        """The rank's queue of dispatches, from this process's own run of the host program."""
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
        rank = SimulatedRank(
            engine.rank, engine.size, self.interposer, simulation, engine.windows, engine.rank, state
        )
        rank._lane = engine.lane
        return rank_queue(rank, program, engine.windows, self.interposer, _Began(self._telling))

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

    def _raised(self, error: BaseException) -> str:
        """A program ended with an error: its own, the world's or the harness's; tell it."""
        engine = self._engine
        if engine.stopping or isinstance(error, Unwound):
            return "unwound"
        if engine.lane.dying or isinstance(error, RankDied):
            self._event("crash")
            return "dead"
        if isinstance(error, PeerLost):
            return "peer_lost"
        if not isinstance(error, Exception | SystemExit):
            raise error
        if isinstance(error, SystemExit):  # a process that leaves is a process that ends
            raise error
        return self._failed(error)

    def _failed(self, error: BaseException) -> str:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith(PACKAGE)
        ]
        text = "".join(traceback.format_list(frames)) + "".join(
            traceback.format_exception_only(error)
        )
        rank = self._engine.rank
        code, lasti, operation = where(Failure(rank, rank, 0, error, text, None, -1, "raise"))
        try:
            data = pickle.dumps(error)
            pickle.loads(data)
        except Exception:
            data = pickle.dumps(OperationError(f"{type(error).__name__}: {error}"))
        self._telling.tell("failure", data, text, self._telling.code(code), lasti, operation)
        self._event("raise")
        return "raised"

    def _event(self, kind: str) -> None:
        rank = self._engine.rank
        self._engine.events.append((rank, kind, -1, rank, 0, 0, None, -1, None, -1))


class _Began(list[int]):
    """Where each dispatch of a rank began, in its own events; told."""

    def __init__(self, telling: Telling) -> None:
        super().__init__()
        self._telling = telling

    def append(self, index: int) -> None:
        """Tell it."""
        super().append(index)
        self._telling.tell("began", index)
