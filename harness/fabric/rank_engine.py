"""A rank's own side of the processes fabric: what `point` means in its process, and its deliveries.

The operations are those of simulated_rank.py, unchanged; this engine stands where the simulation stands.
The process performs what it announces, and it alone copies what it has put in flight.

At each point the process tells what one of its lanes will do next and waits for a command: let a lane go
on, deliver an operation, end. In natural order nobody is asked (rank_natural.py).

Not modelled: progress while the program computes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any

from harness.errors import PeerLost, Unwound, WaitExpired
from harness.fabric.arena import Arena, Events, Telling
from harness.fabric.flight import Deliveries, InFlight
from harness.fabric.lanes import EVENT_SECONDS, POLL_OPERATIONS, Lane
from harness.fabric.rank_lanes import RankLanes
from harness.plan import Hold, Preempt
from harness.record import Call

# Commands; a plan's text follows its command.
PLAN, GO, PEER_LOST, EXPIRED, DELIVER, PROBE, STOP_LANE, DONE, EXIT = range(9)
COMMAND = struct.Struct("<qqqd")  # the command, whose lane (its worker), the argument, the clock
PROBE_EVENTS = 200


class RankEngine(Deliveries):
    """The part of a world that lives in one rank's process. workers: how many lanes each rank has."""

    natural = False

    def __init__(
        self, arena: Arena, rank: int, workers: Sequence[int], telling: Telling, commands: int,
        wakes: int, *, torn: int,
    ) -> None:
        size = len(workers)
        super().__init__(size, _NO_SCHEDULE, eager=False, torn=torn)
        self.rank = rank
        self.ops: dict[int, InFlight] = {}
        self.lane_count = sum(workers)
        first = sum(workers[:rank])
        self.lanes = [Lane(first + worker, _nothing, rank, worker) for worker in range(workers[rank])]
        self.carried: RankLanes  # which of them goes on
        self.dead: list[int] = []
        self.slow = True  # every operation goes through `point`
        self._arena = arena
        self._telling = telling
        self._commands = commands
        self._wakes = wakes
        self._probing = 0
        self.seen: list[int] | None = None  # the counts of the faults, until they are told
        self._arrival: tuple[Any, int] | None = None
        self._polled = False
        self._alarm: float | None = None
        self._command: tuple[int, int, int, float] | None = None  # read, and not yet followed
        self._unfreed: list[Any] = []  # before a probe
        self._granted = 0.0, 0  # the world's clock, and own events, at the last command
        self.events: Any = Events(telling, arena, self)

    windows: Any  # this process's own view of the memory

    # What operations ask of an engine -----------------------------------------------------------

    def issue(self, op: InFlight, *, ordered: bool) -> None:
        """Put an operation in flight, and tell the conductor."""
        super().issue(op, ordered=ordered)
        self.ops[op.number] = op
        after = op.after.number if op.after is not None else -1
        landing = op.local[2] if op.local is not None else -1
        self._telling.tell(
            "issue", op.number, op.kind, op.peer, op.window, op.start, op.nbytes, ordered, after, landing
        )

    def arrive(self, key: Any, needed: int) -> None:
        """Come to a rendezvous."""
        self._arrival = key, needed

    def polls(self, lane: Lane) -> None:
        """Called before a read that follows many others in a row."""
        lane.reads = 0
        self._polled = True

    def wake_at(self, lane: Lane, seconds: float) -> None:
        """End the wait that begins after so many seconds."""
        self._alarm = seconds

    def inject(self, lane: Lane, error: BaseException) -> None:
        """Have another lane of the rank raise `error`: the rank has died."""
        super().inject(lane, error)
        self._telling.tell("inject", lane.worker)

    def clock(self) -> float:
        """Virtual seconds since the run began, as far as this process knows."""
        clock, count = self._granted
        return clock + (len(self.events) - count) * EVENT_SECONDS

    def point(self, lane: Lane) -> None:
        """Return when this rank may perform the operation that it has announced."""
        if lane.state == "unwinding":
            lane.unwinds += 1
            if lane.unwinds > POLL_OPERATIONS:  # the program swallows Unwound
                os._exit(0)
            raise Unwound
        if self._probing:
            self._probed(lane)
        else:
            self._turn(lane)

    def _turn(self, lane: Lane) -> None:
        self._announce(lane)
        self.answer()
        self.serve(lane)

    def _announce(self, lane: Lane) -> None:
        """Tell what the lane will do next and why it cannot yet, if it cannot."""
        arrival, self._arrival = self._arrival, None
        polled, self._polled = self._polled, False
        alarm, self._alarm = self._alarm, None
        self._telling.tell(
            "point", lane.worker, lane.pending, self._told(lane.blocked_on), lane.enabled, arrival,
            polled, alarm,
        )

    def _told(self, reason: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Why a lane is blocked, as marshal knows it: code by number."""
        if reason is None:
            return None
        *rest, code, lasti = reason
        return *rest, self._telling.code(code), lasti

    def answer(self) -> None:
        """Let the harness see what was told, and say so."""
        self._telling.flush()
        os.write(self._wakes, b"p")

    def serve(self, lane: Lane) -> int:
        """Follow commands until one concerns `lane`, or its process once it has ended; returns that."""
        while True:
            if self._command is None:
                self._command = self._read()
            command, worker, argument, clock = self._command
            target = self.lanes[0 if command == DONE else worker]
            if target is not lane:  # which takes the command
                self.carried.to(target)
                continue
            self._command = None
            self._granted = clock, len(self.events)
            if lane.state != "running":
                return command
            if command == STOP_LANE:
                self.end_probe()
                lane.state = "unwinding"
                raise Unwound
            self._unblock(lane)
            if command == PEER_LOST:
                raise self._lost(lane, argument)
            if command == EXPIRED:
                raise WaitExpired
            if lane.inject is not None:
                error, lane.inject = lane.inject, None
                raise error
            if command == PROBE:  # what follows is undone
                self.tell_seen()
                self._probing = len(self.events) + PROBE_EVENTS
                self._unfreed = [one for one in self._own_regions() if not one.freed]
            return command

    def _read(self) -> tuple[int, int, int, float]:
        """The next command to a lane; operations in flight are delivered meanwhile."""
        while True:
            data = os.read(self._commands, COMMAND.size)
            if not data:  # the harness is gone
                os._exit(0)
            command, worker, argument, clock = COMMAND.unpack(data)
            if command != DELIVER:
                return command, worker, argument, clock
            op = self.ops[argument]
            self._deliver(op)
            if op.done:
                del self.ops[argument]
            self.answer()

    def _own_regions(self) -> list[Any]:
        """This rank's part of every window that its process has met."""
        held = [regions for regions in self.windows.regions.values() if isinstance(regions, list)]
        return [regions[self.rank] for regions in held if regions[self.rank] is not None]

    def tell_seen(self) -> None:
        """How many operations each fault has looked at; once."""
        if self.seen is not None:
            self._telling.tell("seen", list(self.seen))
            self.seen = None

    def _lost(self, lane: Lane, rank: int) -> PeerLost:
        self.events.append((lane.index, "peer_lost", -1, self.rank, 0, 0, None, -1, None, -1))
        return PeerLost(rank)

    def _probed(self, lane: Lane) -> None:
        """Go on alone after the run (fabric/afterwards.py): what only this rank holds back passes."""
        if len(self.events) < self._probing:
            if lane.enabled:
                return
            if lane.blocked_on is not None and lane.blocked_on[0] in ("quiet", "get"):
                self._unblock(lane)
                return
        self._turn(lane)  # the conductor knows whether it is the last to come to a rendezvous

    def end_probe(self) -> None:
        """What a probe has freed is not freed."""
        self._probing = 0
        for region in self._unfreed:
            region.freed = False
        self._unfreed = []

    def flush(self) -> None:
        """The first lane has ended (natural order only)."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        """time.sleep of a conducted rank program: virtual. Of a host program: nothing."""
        if self.carried.current.state == "running":
            self.current = self.carried.current
            super().sleep(seconds)


class ToldCalls(list[Call]):
    """A rank's collective calls; each is told as it is made."""

    def __init__(self, telling: Telling) -> None:
        super().__init__()
        self._telling = telling

    def append(self, call: Call) -> None:
        """Keep and tell it."""
        super().append(call)
        name, what, code, lasti, members, lane = call
        self._telling.tell("call", name, what, self._telling.code(code), lasti, members, lane)


_NO_SCHEDULE: tuple[Hold | Preempt, ...] = ()


def _nothing() -> None:
    return None
