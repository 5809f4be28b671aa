"""The simulated fabric: ranks as greenlets on one thread, virtual time, deliveries as events.

Model. A lane announces its next operation (`point`) before it performs it. At each point the engine
picks the owner that moves: an enabled lane, or an undelivered one-sided operation that the delivery
rules (memory.py) allow. The choice is made inside whatever greenlet is running, so a lane that goes on
costs no switch. A world in which nobody can move is seen at once.

Default run: every operation is delivered at once (lowest issue number first), the current lane goes
on until it blocks, then the lowest enabled one. `Hold` and `Preempt` deviate from that; an explorer's
`chooser` replaces it (harness/schedule). Every choice is followed by exactly one event of its owner:
conversions between the two forms rest on that.

Poll-yield rule: a lane whose last 64 operations were reads of the same few values, with no event of
anybody between that may have changed what it reads, steps back until there is such an event. (Reads of
others do not count: two polling lanes would wake each other for ever while a third starves.) When
nobody else can move, the polling lanes go on for 64 rounds; a poll that has not ended by then is a
livelock, or `PeerLost` if a rank has died.

Not modelled: several lanes a rank, groups, torn or line-wise visibility (clear errors say so).
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from bisect import insort
from collections.abc import Callable, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from operator import attrgetter
from types import CodeType
from typing import Any, Protocol

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from harness.ambient import Ambient
from harness.errors import EngineError, NoSchedulingPoint, NotYet, PeerLost, RankDied, Unwound
from harness.fabric import carrier
from harness.fabric.carrier import Carrier, borrow, give_back, watch
from harness.fabric.memory import Region
from harness.plan import Hold, Preempt
from harness.record import VALUE_BYTES_MAX, Failure, RawEvent

POLL_OPERATIONS = 64
POLL_VALUES_MAX = 16
# Events that change nothing another lane could read.
QUIET_EVENTS = frozenset((
    "load", "remote_load", "get_issue", "get_nbi", "get", "read", "land", "fence", "quiet", "sleep",
))
STALE_ROUNDS_MAX = 64
EVENTS_MAX = 200_000
PROBE_EVENTS = 200
EVENT_SECONDS = 1e-6
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(
    sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class Chooser(Protocol):
    """An explorer's policy: asked at every point with two or more enabled owners."""

    def choose(self, simulation: Simulation, lanes: list[Lane], ops: list[InFlight]) -> Lane | InFlight:
        """The owner that moves next, one of `lanes` or `ops` (both in owner order)."""
        ...


class Lane:
    """One worker of a rank. `pending` describes the operation it will perform when it is chosen."""

    __slots__ = (
        "blocked_on", "carrier", "dying", "enabled", "failure", "fence_mark", "index", "inject",
        "outstanding", "parked", "pending", "program", "reads", "result", "state", "stopped",
        "unwinds",
    )

    def __init__(self, index: int, size: int, program: Callable[[], Any]) -> None:
        self.index = index
        self.program = program
        self.carrier: Carrier
        self.state = "new"
        self.enabled = True
        self.pending: tuple[Any, ...] = ("start",)
        self.blocked_on: tuple[Any, ...] | None = None
        self.inject: BaseException | None = None
        self.parked = False
        self.dying = False  # a fault killed it; its program may still run `finally` blocks
        self.stopped: tuple[tuple[Any, ...], tuple[Any, ...] | None] | None = None
        self.reads = 0
        self.fence_mark = 0
        self.outstanding = 0
        self.result: Any = None
        self.failure: Failure | None = None
        self.unwinds = 0


class InFlight:
    """A one-sided operation between issue and delivery; an owner of its own."""

    __slots__ = (
        "after", "atomic", "code", "data", "done", "enabled", "kind", "lane", "lasti", "local",
        "mark", "nbytes", "number", "peer", "release", "signal", "source", "start", "target",
        "value", "waiter", "window",
    )

    def __init__(
        self, number: int, kind: str, lane: Lane, peer: int, window: int, target: Region,
        start: int, nbytes: int, data: Any, mark: int, code: CodeType | None, lasti: int,
    ) -> None:
        self.number = number
        self.kind = kind  # "put", "add" (to a cell), "set" (a cell), "get"
        self.lane = lane
        self.peer = peer
        self.window = window
        self.target = target
        self.start = start
        self.nbytes = nbytes
        self.data = data
        self.mark = mark
        self.code = code
        self.lasti = lasti
        self.value: Any = None  # put: the digest of its data
        self.atomic: torch.dtype | None = None
        self.source: tuple[Region, int] | None = None  # put_nbi: read at delivery
        self.local: tuple[Region, int, int] | None = None  # get: where it lands (region, start, window)
        self.signal: InFlight | None = None
        self.after: InFlight | None = None
        self.waiter: Lane | None = None
        self.release = -1
        self.enabled = False
        self.done = False


_number = attrgetter("number")


class Simulation:
    """One run's engine. Build it, add lanes, call `run`, read the fields."""

    def __init__(
        self, size: int, *, schedule: Sequence[Hold | Preempt] = (), eager: bool = False,
        chooser: Chooser | None = None, guide: Callable[[int], int] | None = None,
        events_max: int = EVENTS_MAX, swapping: bool = False,
    ) -> None:
        self.size = size
        self.events: list[RawEvent] = []
        self.lanes: list[Lane] = []
        self.points = 0
        self.issued = 0
        self.applied = 0
        self.ended = "returned"
        self.dead: list[int] = []
        self.failures: list[Failure] = []
        self.peers_lost: list[int] = []
        self.polled: list[Lane] = []
        self.derived: list[Preempt] = []
        self._guide = guide
        self._chooser = chooser
        self._holds: dict[int, int] = {}
        preempts: dict[int, int] = {}
        for deviation in schedule:  # of two for the same place the first counts
            if isinstance(deviation, Preempt):
                preempts.setdefault(deviation.at, deviation.to)
            elif not eager:
                self._holds.setdefault(deviation.op, deviation.until)
        self._preempts = preempts
        self._deviating = bool(chooser or guide or self._holds or preempts)
        self._limit = events_max
        self._out: list[dict[int, InFlight]] = [{} for _ in range(size * size)]
        self._due: list[InFlight] = []
        self._held: list[InFlight] = []
        self._releases: list[tuple[int, int, InFlight]] = []
        self._enabled_lanes = 0
        self._parked: list[Lane] = []
        self._looked = 0
        self._interrupt: BaseException | None = None
        self._stale = 0
        self._sleepers: list[tuple[float, int, Lane]] = []
        self._now = 0.0
        self._starting = True
        self.stopping = False
        self.gate = True  # starting or stopping: points do not choose
        self.probed: Lane | None = None
        self._slow = True  # gated, deviating, or with parked lanes: not the default run's fast path
        self.current: Lane = Lane(-1, size, lambda: None)  # until the first lane starts
        self._hub: greenlet = getcurrent()
        self.ambient = Ambient(self.sleep, self.clock, swapping)
        self._arrivals: dict[Any, int] = {}

    # Running ------------------------------------------------------------------------------------

    def add_lane(self, program: Callable[[], Any]) -> Lane:
        """A lane that runs `program()`; index = order of addition."""
        lane = Lane(len(self.lanes), self.size, program)
        self.lanes.append(lane)
        return lane

    def run(self, when_blocked: Callable[[], None] | None = None) -> None:
        """Run every lane until all have returned, or nobody can move. Inside `ambient` only.

        when_blocked: called when lanes are still blocked, before they are unwound.

        Re-raises what a program could not have meant: Ctrl-C, a test's time limit, Hypothesis's stop.
        """
        self._enabled_lanes = len(self.lanes)
        with watch(self):
            try:
                self._start()
                if self.lanes and not self.stopping:
                    self.current = self.lanes[0]
                    first = self._next()
                    if first is not None:
                        self._enter(first)
                if when_blocked is not None and not self.stopping and self.ended == "returned":
                    self._still_blocked(when_blocked)
            finally:
                self._unwind()
        if self._interrupt is not None:
            raise self._interrupt

    def _still_blocked(self, when_blocked: Callable[[], None]) -> None:
        if any(lane.state == "running" for lane in self.lanes):
            self.ended = "blocked"
            self.gate = self._slow = True
            when_blocked()

    def _start(self) -> None:
        """Run each lane up to its first operation, in order."""
        grad = torch.is_grad_enabled()
        for lane in self.lanes:
            lane.carrier = borrow()
            lane.carrier.job = self._job(lane)
            self.current = lane
            if self.ambient.swapping:
                self.ambient.enter(lane.index)
            lane.state = "running"
            lane.carrier.greenlet.switch()
            if self.ambient.swapping:
                self.ambient.leave(lane.index)
            if torch.is_grad_enabled() != grad:
                torch._C._set_grad_enabled(grad)
            if self.stopping:
                return
        self._starting = self.gate = False
        self._slow = self._deviating or bool(self._parked)

    def _enter(self, lane: Lane) -> None:
        self.current = lane
        if self.ambient.swapping:
            self.ambient.enter(lane.index)
        lane.carrier.greenlet.switch()

    def _job(self, lane: Lane) -> Callable[[], greenlet]:
        def job() -> greenlet:
            try:
                result = lane.program()
            except GreenletExit:  # a lane that was left behind is being collected
                raise
            except BaseException as error:
                self._raised(lane, error)
            else:
                if lane.dying:
                    self._raised(lane, RankDied())
                elif self.stopping:  # it swallowed Unwound: how it ended means nothing
                    lane.state = "unwound"
                else:
                    lane.result = result
                    lane.state = "returned"
            return self._after(lane)

        return job

    def _raised(self, lane: Lane, error: BaseException) -> None:
        """A lane's program ended with an error: the program's own, the world's or the harness's."""
        if not isinstance(error, Exception | SystemExit | Unwound | RankDied):
            self._interrupt = self._interrupt or error
            self.stopping = self.gate = self._slow = True
        if self.stopping:  # whatever a program makes of Unwound is no failure of it
            lane.state = "unwound"
        elif lane.dying or isinstance(error, RankDied):
            lane.state = "dead"
            self.dead.append(lane.index)
            self.events.append((lane.index, "crash", -1, lane.index, 0, 0, None, -1, None, -1))
        elif isinstance(error, PeerLost):
            lane.state = "peer_lost"
            self.peers_lost.append(lane.index)
            lane.failure = self._failure(lane, error)
        else:
            if isinstance(error, NoSchedulingPoint | Unwound):  # both are the watchdog's
                limit = f"rank {lane.index}: no scheduling point for {carrier.LIMIT_SECONDS:g} s"
                error = NoSchedulingPoint(limit).with_traceback(error.__traceback__)
            lane.state = "raised"
            lane.failure = self._failure(lane, error)
            self.failures.append(lane.failure)
            self.events.append((lane.index, "raise", -1, lane.index, 0, 0, None, -1, None, -1))

    def _failure(self, lane: Lane, error: BaseException) -> Failure:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith(_PACKAGE)
        ]
        text = "".join(traceback.format_list(frames)) + "".join(
            traceback.format_exception_only(error)
        )
        code, lasti = _user_frame(error)
        return Failure(
            lane.index, len(self.events), error, text, code, lasti, str(lane.pending[0])
        )

    def _after(self, lane: Lane) -> greenlet:
        """A lane has ended: the greenlet that goes on."""
        if lane.enabled:
            lane.enabled = False
            self._enabled_lanes -= 1
        if lane.state != "unwound":  # what an unwound lane waited for is told from its pending
            lane.pending = ("ended",)
        if self.gate:
            return self._hub
        if self.ambient.swapping:
            self.ambient.leave(lane.index)
        following = self._next()
        if following is None:
            return self._hub
        self.current = following
        if self.ambient.swapping:
            self.ambient.enter(following.index)
        return following.carrier.greenlet

    def _unwind(self) -> None:
        """End every lane that has not ended, in order; `stopping` makes their operations raise."""
        self.stopping = self.gate = self._slow = True
        for lane in self.lanes:
            if lane.state == "running":
                if self.ended == "returned":
                    self.ended = "blocked"
                lane.stopped = lane.stopped or (lane.pending, lane.blocked_on)  # before `finally` blocks change them
                self.current = lane
                if not lane.carrier.greenlet.dead:
                    lane.carrier.greenlet.throw(Unwound)
                if lane.state == "running":  # it swallows every Unwound: its carrier is lost
                    lane.state = "unwound"
                    continue
            if lane.state != "new":
                give_back(lane.carrier)

    # Choosing -----------------------------------------------------------------------------------

    def point(self, lane: Lane) -> None:
        """Return when `lane` is the owner that moves."""
        if lane.enabled and not (self._slow or self._due) and len(self.events) < self._limit:
            if self._enabled_lanes > 1:  # the default run: the current lane goes on
                self.points += 1
            return
        if self.gate:
            self._pause(lane)
            return
        following = self._next()
        if following is not lane:
            self._switch(lane, following)
        elif lane.inject is not None:
            self._raise_injected(lane)

    def _pause(self, lane: Lane) -> None:
        """Before the first choice, and after the last."""
        if self.stopping:
            lane.unwinds += 1
            if lane.unwinds > POLL_OPERATIONS:  # the program swallows Unwound: leave it behind
                parent = getcurrent().parent
                assert parent is not None
                parent.switch()
            raise Unwound
        if (
            self.probed is lane and len(self.events) < self._limit
            and (lane.enabled or self._passes(lane))
        ):
            return
        grad = torch.is_grad_enabled()
        self._hub.switch()
        self._resumed(lane, grad)

    def _passes(self, lane: Lane) -> bool:
        """A probed lane goes through what only its own operations could hold back."""
        if lane.blocked_on is None or lane.blocked_on[0] not in ("quiet", "get"):
            return False
        self._unblock(lane)
        return True

    def probe(self, lane: Lane) -> None:
        """Let a blocked lane go on alone, as if its wait were over, until it blocks again.

        Its operations are issued, never delivered. After the run only (harness/fabric/afterwards.py).
        """
        self.probed = lane
        self.current = lane
        self._limit = len(self.events) + PROBE_EVENTS
        self.unblock(lane)
        if self.ambient.swapping:
            self.ambient.enter(lane.index)
        lane.carrier.greenlet.switch()
        self.probed = None

    def _switch(self, lane: Lane, following: Lane | None) -> None:
        grad = torch.is_grad_enabled()
        swapping = self.ambient.swapping
        if swapping:
            self.ambient.leave(lane.index)
        if following is None:
            self._hub.switch()
        else:
            self.current = following
            if swapping:
                self.ambient.enter(following.index)
            following.carrier.greenlet.switch()
        self._resumed(lane, grad)

    def _resumed(self, lane: Lane, grad: bool) -> None:
        if torch.is_grad_enabled() != grad:
            torch._C._set_grad_enabled(grad)
        if lane.inject is not None:
            self._raise_injected(lane)

    def _raise_injected(self, lane: Lane) -> None:
        error, lane.inject = lane.inject, None
        assert error is not None
        self._unblock(lane)
        self.events.append((lane.index, "peer_lost", -1, lane.index, 0, 0, None, -1, None, -1))
        raise error

    def _next(self) -> Lane | None:
        """Deliver what is chosen before it; then the lane that moves, or None when nobody can.

        The default run without deviations; `_next_deviating` is the same with them.
        """
        events = self.events
        due = self._due
        limit = self._limit
        while not (self._deviating or self._parked):
            if len(events) >= limit:
                self.ended = "overrun"
                return None
            lanes = self._enabled_lanes
            if due:
                if lanes or len(due) > 1:
                    self.points += 1
                self._deliver(due[0])
            elif lanes:
                if lanes > 1:
                    self.points += 1
                return self._default_lane()
            elif not self._idle():
                return None
        return self._next_deviating()

    def _default_lane(self) -> Lane:
        """The current lane if it can go on, else the lowest enabled one."""
        current = self.current
        if current.enabled:
            return current
        for lane in self.lanes:
            if lane.enabled:
                return lane
        raise EngineError("no lane is enabled, but one was counted")

    def _next_deviating(self) -> Lane | None:
        """`_next` under a chooser, a guide, Holds, Preempts or parked lanes."""
        events = self.events
        due = self._due
        while True:
            clock = len(events)
            if clock >= self._limit:
                self.ended = "overrun"
                return None
            if self._parked:
                self._look(clock)
            if self._releases and self._releases[0][0] <= clock:
                self._release(clock)
            count = self._enabled_lanes + len(due) + len(self._held)
            if count == 0:
                if self._idle():
                    continue
                return None
            choice: Lane | InFlight
            if self._chooser is not None:
                choice = self._explore(count)
            else:
                if due:
                    choice = due[0]
                else:
                    choice = self._default_lane() if self._enabled_lanes else self._held[0]
                if count > 1:
                    if self._preempts or self._guide is not None:
                        choice = self._deviate(choice)
                    self.points += 1
            if isinstance(choice, Lane):
                return choice
            self._deliver(choice)

    def _owners(self) -> tuple[list[Lane], list[InFlight]]:
        """The enabled owners, in owner order."""
        ops = sorted(self._due + self._held, key=_number) if self._held else self._due
        return [lane for lane in self.lanes if lane.enabled], ops

    def _explore(self, count: int) -> Lane | InFlight:
        lanes, ops = self._owners()
        if count == 1:
            return lanes[0] if lanes else ops[0]
        assert self._chooser is not None
        self.points += 1
        return self._chooser.choose(self, lanes, ops)

    def _deviate(self, default: Lane | InFlight) -> Lane | InFlight:
        """The default choice, or what a Preempt (or the guide) wants instead."""
        if self._guide is not None:
            wanted = self._guide(len(self.events))
            if wanted in (-1, self.owner_number(default)):
                return default
            others = self._others(default)
            for index, other in enumerate(others):
                if self.owner_number(other) == wanted:
                    self.derived.append(Preempt(self.points, index))
                    return other
            return default
        to = self._preempts.get(self.points)
        if to is None:
            return default
        others = self._others(default)
        self.applied += 1
        return others[min(to, len(others) - 1)]

    def _others(self, default: Lane | InFlight) -> list[Lane | InFlight]:
        lanes, ops = self._owners()
        owners: list[Lane | InFlight] = [*lanes, *ops]
        return [owner for owner in owners if owner is not default]

    def owner_number(self, owner: Lane | InFlight) -> int:
        """The number of an owner in events: lanes first, then one-sided operations."""
        return owner.index if isinstance(owner, Lane) else self.size + owner.number

    def _idle(self) -> bool:
        """Nobody is enabled: whether something outside the programs lets them go on."""
        if self._sleepers:
            wake, _, lane = heappop(self._sleepers)
            self._now = max(self._now, wake)
            self._unblock(lane)
            return True
        if self._parked and self._stale < STALE_ROUNDS_MAX:
            self._stale += 1
            self._unpark()
            return True
        if self.dead:
            blocked = [lane for lane in self.lanes if lane.state == "running"]
            for lane in blocked:
                lane.inject = PeerLost(self.dead[0])
                lane.parked = False
                lane.enabled = True
            self._enabled_lanes = len(blocked)
            self._parked = []
            self._stale = 0
            return bool(blocked)
        if self._parked:
            self.ended = "livelock"
            self.polled = sorted(self._parked, key=attrgetter("index"))
        return False

    # Blocking and polling -----------------------------------------------------------------------

    def block(self, lane: Lane, reason: tuple[Any, ...]) -> None:
        """Take the lane out of the enabled ones; `reason` says what it waits for."""
        lane.blocked_on = reason
        lane.enabled = False
        self._enabled_lanes -= 1

    def _unblock(self, lane: Lane) -> None:
        lane.blocked_on = None
        if not lane.enabled:
            lane.enabled = True
            self._enabled_lanes += 1

    def unblock(self, lane: Lane) -> None:
        """Let a blocked lane be chosen again; its reason stays until it is."""
        if not lane.enabled:
            lane.enabled = True
            self._enabled_lanes += 1

    def wake(self, region: Region) -> None:
        """Look again at the lanes that wait on a cell of `region`, after a write to it."""
        for lane in region.waiters:
            reason = lane.blocked_on
            value = region.cells[reason[2]]
            holds = value >= reason[3] if reason[4] else value == reason[3]
            if holds != lane.enabled and lane.inject is None:
                lane.enabled = holds
                self._enabled_lanes += 1 if holds else -1

    def arrive(self, key: Any, needed: int) -> None:
        """Count an arrival at a rendezvous; the last one lets all go on."""
        count = self._arrivals.get(key, 0) + 1
        self._arrivals[key] = count
        if count < needed:
            return
        for other in self.lanes:
            if other.blocked_on is not None and other.blocked_on[:2] == ("meet", key):
                self.unblock(other)

    def arrived(self, key: Any) -> int:
        """How many lanes have arrived at a rendezvous."""
        return self._arrivals.get(key, 0)

    def polls(self, lane: Lane) -> None:
        """Called before a read that follows 64 others in a row: step back if they were a poll."""
        lane.reads = 0
        seen = set()
        own = 0
        for event in reversed(self.events):
            if event[1] not in QUIET_EVENTS:
                return
            if event[0] == lane.index:
                seen.add(event[1:7])
                own += 1
                if len(seen) > POLL_VALUES_MAX:
                    return
                if own == POLL_OPERATIONS:
                    break
        lane.parked = True
        lane.enabled = False
        self._enabled_lanes -= 1
        if not self._parked:
            self._looked = len(self.events)
        self._parked.append(lane)
        self._slow = True

    def _look(self, clock: int) -> None:
        """Let the polling lanes go on if something happened that may change what they read."""
        moved = any(event[1] not in QUIET_EVENTS for event in self.events[self._looked : clock])
        self._looked = clock
        if moved:
            self._stale = 0
            self._unpark()

    def _unpark(self) -> None:
        for lane in self._parked:
            lane.parked = False
            lane.enabled = True
        self._enabled_lanes += len(self._parked)
        self._parked = []
        self._slow = self._deviating or self.gate

    def clock(self) -> float:
        """Virtual seconds since the run began: a microsecond an event, plus what was slept."""
        return self._now + len(self.events) * EVENT_SECONDS

    def sleep(self, seconds: float) -> None:
        """time.sleep of a rank program: costs virtual time only (of a host program: nothing)."""
        if not self._enabled_lanes and not self.lanes:
            return
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        lane = self.current
        self.block(lane, ("sleep", None, -1))
        heappush(self._sleepers, (self.clock() + seconds, lane.index, lane))
        lane.pending = ("sleep",)
        self.point(lane)
        self.events.append((lane.index, "sleep", -1, lane.index, 0, 0, None, -1, None, -1))

    # One-sided operations -----------------------------------------------------------------------

    def issue(self, op: InFlight, *, ordered: bool) -> None:
        """Put an operation in flight. ordered: it is put-like, so fences order it."""
        lane = op.lane
        number = op.number
        lane.outstanding += 1
        self.issued = number + 1
        op.enabled = True
        if ordered:
            lane.reads = 0
            out = self._out[lane.index * self.size + op.peer]
            if out and next(iter(out)) < op.mark:
                op.enabled = False
            out[number] = op
        after = op.after
        if after is not None and not after.done:
            op.enabled = False
        if number in self._holds:
            op.release = self._holds[number]
            if op.release > 0:
                op.release += len(self.events)
        elif op.enabled:
            self._due.append(op)  # it is the youngest, so the list stays in order
            return
        if op.enabled:
            self._open(op)

    def _open(self, op: InFlight) -> None:
        """The delivery rules allow `op` from now on: due at once, or held."""
        release = op.release
        if release < 0 or 0 < release <= len(self.events):
            if self._due and self._due[-1].number > op.number:
                insort(self._due, op, key=_number)
            else:
                self._due.append(op)
            return
        self.applied += 1
        insort(self._held, op, key=_number)
        if release > 0:
            heappush(self._releases, (release, op.number, op))

    def _release(self, clock: int) -> None:
        while self._releases and self._releases[0][0] <= clock:
            _, _, op = heappop(self._releases)
            if op in self._held:
                self._held.remove(op)
                op.release = -1
                self._open(op)

    def _deliver(self, op: InFlight) -> None:
        """Perform one event of an operation in flight."""
        lane = op.lane
        owner = self.size + op.number
        region = op.target
        start = op.start
        stop = start + op.nbytes
        kind = "deliver"
        window, peer, lo = op.window, op.peer, start - region.base
        if op.kind == "get":
            if op.data is None:
                op.data = bytes(region.view[start:stop])
                self.events.append(
                    (owner, "read", window, peer, lo, lo + op.nbytes, digest(op.data), op.number,
                     op.code, op.lasti)
                )
                return
            assert op.local is not None
            region, start, window = op.local
            stop = start + op.nbytes
            kind, peer, lo = "land", lane.index, start - region.base
            region.view[start:stop] = op.data
            value: Any = digest(op.data)
        elif op.kind == "add":
            total = region.cells[start >> 2] + op.data
            value = ((total + 2147483648) & 4294967295) - 2147483648
            region.cells[start >> 2] = value
        elif op.kind == "set":
            value = region.cells[start >> 2] = op.data
        else:
            data = op.data
            value = op.value
            if op.source is not None or op.atomic is not None:
                if op.source is not None:
                    source, begin = op.source
                    data = bytes(source.view[begin : begin + op.nbytes])
                if op.atomic is not None and data:
                    data = _sum(region.view[start:stop], data, op.atomic)
                value = digest(data)
            region.view[start:stop] = data
        self.events.append(
            (owner, kind, window, peer, lo, lo + op.nbytes, value, op.number, op.code, op.lasti)
        )
        self._close(op, lane)
        if region.waiters:
            self.wake(region)

    def _close(self, op: InFlight, lane: Lane) -> None:
        """Take a delivered operation out, and open what it stood in front of."""
        op.done = True
        due = self._due
        if due and due[0] is op:
            del due[0]
        elif op in due:
            due.remove(op)
        else:
            self._held.remove(op)
        lane.outstanding -= 1
        if op.kind != "get":
            out = self._out[lane.index * self.size + op.peer]
            if len(out) == 1:
                out.clear()
            else:
                was_first = next(iter(out)) == op.number
                del out[op.number]
                if was_first:
                    self._open_fenced(out)
        signal = op.signal
        if signal is not None and not signal.enabled:
            out = self._out[lane.index * self.size + signal.peer]
            if next(iter(out)) >= signal.mark or next(iter(out)) == signal.number:
                signal.enabled = True
                self._open(signal)
        waiter = op.waiter
        if waiter is not None and waiter.blocked_on is not None:
            self.unblock(waiter)
        if lane.blocked_on is not None and not lane.outstanding and lane.blocked_on[0] == "quiet":
            self.unblock(lane)

    def _open_fenced(self, out: dict[int, InFlight]) -> None:
        """The oldest of one rank's operations to one target is gone: open what stood behind it."""
        first = next(iter(out))
        for other in out.values():
            if other.mark > first and other.number != first:
                break
            if not other.enabled and (other.after is None or other.after.done):
                other.enabled = True
                self._open(other)

    @staticmethod
    def not_yet(what: str) -> None:
        """Refuse a part of the interface that has no body yet."""
        raise NotYet(f"{what}: not yet built in the simulated fabric; leave it out")


def digest(data: bytes) -> bytes:
    """What an event keeps of a value: the bytes, or their digest beyond 256."""
    if len(data) <= VALUE_BYTES_MAX:
        return data
    return blake2b(data, digest_size=16).digest()


def _sum(held: memoryview, data: bytes, dtype: torch.dtype) -> bytes:
    """Elementwise sum of two byte strings as `dtype`."""
    left = torch.frombuffer(bytearray(held), dtype=dtype)
    left += torch.frombuffer(bytearray(data), dtype=dtype)
    return left.view(torch.uint8).numpy().tobytes()


def _user_frame(error: BaseException) -> tuple[CodeType | None, int]:
    """The innermost frame of a traceback that is the user's: not the harness's own and, if there is
    any other, not a library's."""
    found: tuple[CodeType | None, int] = (None, -1)
    library: tuple[CodeType | None, int] = (None, -1)
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename.startswith(_LIBRARIES):
            library = (code, step.tb_lasti)
        elif not code.co_filename.startswith(_PACKAGE):
            found = (code, step.tb_lasti)
        step = step.tb_next
    return found if found[0] is not None else library
