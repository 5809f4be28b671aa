"""A rank's own side of the processes fabric: what `point` means in its process, and its deliveries.

The operations are those of simulated_rank.py, unchanged; this engine stands where the simulation stands.
The process performs what it announces, and it alone copies what it has put in flight.

Conducted: at each point the process tells what it will do next and waits for a command: go on, deliver
one of your operations, end. Natural: nobody is asked. The process takes the world's lock, performs its
operation and lets go with its event (arena.py); what it has in flight it delivers itself whenever it
comes to an operation or waits, in an order and after pauses that follow from a seed. So a put arrives
some time after its call, as on a machine whose network makes progress in calls. Waiting is short
adaptive polling.

Not modelled: progress while the program computes; several lanes of a rank.
"""

from __future__ import annotations

import os
import struct
from typing import Any

from harness.ambient import nap, now
from harness.errors import PeerLost, Unwound, WaitExpired
from harness.fabric.arena import ENDED, LOSTS, RUNNING, STAMP, STATE, STOP, Arena, Events, Telling
from harness.fabric.flight import Deliveries, InFlight
from harness.fabric.lanes import EVENT_SECONDS, POLL_OPERATIONS, Lane
from harness.plan import Hold, Preempt
from harness.record import Call

# Commands, each with an argument and the world's clock; a plan's text follows its command.
PLAN, GO, PEER_LOST, EXPIRED, DELIVER, PROBE, STOP_LANE, DONE, EXIT = range(9)
COMMAND = struct.Struct("<qqd")
PROBE_EVENTS = 200
SPINS = 20  # before a waiting process sleeps
SLEEP_SECONDS = 50e-6
SLEEP_SECONDS_MAX = 2e-3
PAUSE_SECONDS_MAX = 1e-3
EAGERNESS = (1.0, 0.5, 0.05)  # chances of an operation to be delivered when its process looks


class RankEngine(Deliveries):
    """The part of a world that lives in one rank's process. pauses: the seeded generator of natural
    order; None = conducted."""

    def __init__(
        self, arena: Arena, rank: int, size: int, telling: Telling, commands: int, wakes: int, *,
        torn: int, pauses: Any,
    ) -> None:
        super().__init__(size, _NO_SCHEDULE, eager=False, torn=torn)
        self.natural = pauses is not None
        self.rank = rank
        self.ops: dict[int, InFlight] = {}
        self.stopping = False
        self.lane = Lane(rank, _nothing)
        self.dead: list[int] = []
        self.slow = True  # every operation goes through `point`
        self._arena = arena
        self._telling = telling
        self._commands = commands
        self._wakes = wakes
        self._pauses = pauses
        self._eagerness: dict[int, float] = {}  # by operation in flight
        self._probing = 0
        self.seen: list[int] | None = None  # the counts of the faults, until they are told
        self._arrival: tuple[Any, int] | None = None
        self._polled = False
        self._alarm: float | None = None
        self._alarm_at = 0.0
        self._granted = 0.0, 0  # the world's clock, and own events, at the last command
        self.events: Any = Events(telling, arena, self)

    # What operations ask of an engine -----------------------------------------------------------

    def issue(self, op: InFlight, *, ordered: bool) -> None:
        """Put an operation in flight, and tell the conductor."""
        super().issue(op, ordered=ordered)
        if self._pauses is not None:
            self._eagerness[op.number] = self._pauses.choice(EAGERNESS)
            return
        self.ops[op.number] = op
        after = op.after.number if op.after is not None else -1
        landing = op.local[2] if op.local is not None else -1
        self._telling.tell(
            "issue", op.number, op.kind, op.peer, op.window, op.start, op.nbytes, ordered, after, landing
        )

    def arrive(self, key: Any, needed: int) -> None:
        """Come to a rendezvous."""
        if self.natural:
            with self._arena.order:
                slot = self._arena.key(key)
                self._arena[slot] += 1
                self._arena.words[STAMP] += 1
        else:
            self._arrival = key, needed

    def polls(self, lane: Lane) -> None:
        """Called before a read that follows many others in a row."""
        lane.reads = 0
        self._polled = True

    def wake_at(self, lane: Lane, seconds: float) -> None:
        """End the wait that begins after so many seconds."""
        self._alarm = seconds
        self._alarm_at = now() + seconds

    def clock(self) -> float:
        """Virtual seconds since the run began, as far as this process knows."""
        clock, count = self._granted
        return clock + (len(self.events) - count) * EVENT_SECONDS

    def point(self, lane: Lane) -> None:
        """Return when this rank may perform the operation that it has announced."""
        if self.stopping:
            lane.unwinds += 1
            if lane.unwinds > POLL_OPERATIONS:  # the program swallows Unwound
                os._exit(0)
            raise Unwound
        if self.natural:
            self._naturally(lane)
        elif self._probing:
            self._probed(lane)
        else:
            self._announce(lane)
            self.answer()
            self.serve()

    # Conducted ----------------------------------------------------------------------------------

    def _announce(self, lane: Lane) -> None:
        """Tell what the lane will do next and why it cannot yet, if it cannot."""
        arrival, self._arrival = self._arrival, None
        polled, self._polled = self._polled, False
        alarm, self._alarm = self._alarm, None
        self._telling.tell(
            "point", lane.pending, self._told(lane.blocked_on), lane.enabled, arrival, polled, alarm
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

    def serve(self) -> tuple[int, int]:
        """Follow commands until one concerns the program; returns it once the program has ended."""
        lane = self.lane
        while True:
            data = os.read(self._commands, COMMAND.size)
            if not data:  # the harness is gone
                os._exit(0)
            command, argument, clock = COMMAND.unpack(data)
            if command == DELIVER:
                op = self.ops[argument]
                self._deliver(op)
                if op.done:
                    del self.ops[argument]
                self.answer()
                continue
            self._granted = clock, len(self.events)
            if lane.state != "running":
                return command, argument
            if command == STOP_LANE:
                self.stopping = True
                raise Unwound
            self._unblock(lane)
            if command == PEER_LOST:
                raise self._lost(argument)
            if command == EXPIRED:
                raise WaitExpired
            if command == PROBE:  # what follows is undone
                self.tell_seen()
                self._probing = len(self.events) + PROBE_EVENTS
            return command, argument

    def tell_seen(self) -> None:
        """How many operations each fault has looked at; once."""
        if self.seen is not None:
            self._telling.tell("seen", list(self.seen))
            self.seen = None

    def _lost(self, rank: int) -> PeerLost:
        self.events.append((self.rank, "peer_lost", -1, self.rank, 0, 0, None, -1, None, -1))
        return PeerLost(rank)

    def _probed(self, lane: Lane) -> None:
        """Go on alone after the run (fabric/afterwards.py): what only this rank holds back passes."""
        if len(self.events) < self._probing:
            if lane.enabled:
                return
            if lane.blocked_on is not None and lane.blocked_on[0] in ("quiet", "get"):
                self._unblock(lane)
                return
        self._announce(lane)
        self.stopping = True
        raise Unwound

    # Natural ------------------------------------------------------------------------------------

    def _naturally(self, lane: Lane) -> None:
        """Wait until the operation can be performed; returns with the world's lock."""
        words, order = self._arena.words, self._arena.order
        self._pause()
        waited = 0
        self._polled = False
        while True:
            if words[STOP]:
                self.stopping = True
                raise Unwound
            order.__enter__()
            ready = self._ready(lane)
            op = self._drawn()
            if op is not None:
                self._deliver(op)
                order.give_all()
                waited = 0
                continue
            if ready:
                self._alarm = None
                words[STATE + self.rank] = RUNNING
                self._unblock_at(lane)
                return
            if self._alarm is None and not self.due:
                if words[STATE + self.rank] == RUNNING:
                    self._telling.tell(
                        "point", lane.pending, self._told(lane.blocked_on), *_WAITING
                    )
                    self._telling.flush()
                words[STATE + self.rank] = words[STAMP]
            lost, words[LOSTS + self.rank] = words[LOSTS + self.rank], 0
            order.give_all()
            if lost:
                words[STATE + self.rank] = RUNNING
                self._unblock(lane)
                raise self._lost(lost - 1)
            if self._alarm is not None and now() >= self._alarm_at:
                self._alarm = None
                self._unblock(lane)
                raise WaitExpired
            waited += 1
            if waited > SPINS:
                nap(min(SLEEP_SECONDS * 2 ** min(waited - SPINS, 8), SLEEP_SECONDS_MAX))
            else:
                os.sched_yield()

    def _unblock_at(self, lane: Lane) -> None:
        if not lane.enabled:
            lane.enabled = True
            self._enabled_lanes += 1

    def _ready(self, lane: Lane) -> bool:
        """Whether what the lane waits for has come."""
        reason = lane.blocked_on
        if reason is None:
            return True
        if reason[0] == "wait":
            _, number, slot, value, reached = reason[:5]
            held = self._region(number).cells[slot]
            return bool(held >= value if reached else held == value)
        if reason[0] == "meet":
            return self._arena[self._arena.key(reason[1])] >= int(reason[2])
        return not lane.outstanding if reason[0] == "quiet" else lane.enabled

    def _region(self, number: int) -> Any:
        return self.windows.regions[number][self.rank]

    windows: Any  # this process's own view of the memory

    def _drawn(self) -> InFlight | None:
        """An operation to deliver now, if the seed says so: some go at once, some late."""
        assert self._pauses is not None
        for op in self._pauses.sample(self.due, len(self.due)):
            if self._pauses.random() < self._eagerness[op.number]:
                return op  # type: ignore[no-any-return]
        return None

    def _pause(self) -> None:
        """Now and then, a while in which the others go on."""
        assert self._pauses is not None
        draw = self._pauses.random()
        if draw < 0.1:
            nap(self._pauses.random() * PAUSE_SECONDS_MAX)
        elif draw < 0.4:
            os.sched_yield()

    def flush(self) -> None:
        """The program has ended: deliver what is still in flight (natural order only)."""
        while self.due:
            with self._arena.order:
                self._deliver(self._drawn() or self.due[0])
        self._arena.words[STATE + self.rank] = ENDED

    def sleep(self, seconds: float) -> None:
        """time.sleep of a conducted rank program: virtual. Of a host program: nothing."""
        if self.lane.state == "running":
            self.current = self.lane
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


_WAITING = (False, None, False, None)  # not enabled, no arrival, no poll, no alarm
_NO_SCHEDULE: tuple[Hold | Preempt, ...] = ()


def _nothing() -> None:
    return None
