"""Lanes of a simulated world: who is enabled, who waits for what, who polls, what time it is.

Poll-yield rule: see fabric/simulated.py. Virtual time: a microsecond an event, plus what was slept when
nobody else could move. Not modelled: lanes that share a core.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from harness.errors import WaitExpired
from harness.fabric.memory import Region
from harness.fabric.tensors import TensorUse
from harness.record import Failure, RawEvent

POLL_OPERATIONS = 64
POLL_VALUES_MAX = 16
# Events that change nothing another lane could read.
QUIET_EVENTS = frozenset((
    "load", "remote_load", "get_issue", "get_nbi", "get", "read", "read_part", "land", "fence",
    "quiet", "publish", "sleep", "expired", "is_completed", "store_check",
    "store_count", "store_num_keys", "store_queue_len", "lock_missed",
))
EVENT_SECONDS = 1e-6
STREAMS = 1 << 16  # more than ranks


class Lane:
    """One worker of a rank. `pending` describes the operation it will perform when it is chosen.

    index: its number in the world, in the order of (rank, worker); with one lane a rank, the rank. Of a
    lane that begins during the run it is FIRST_LATE and below while that lasts (late_lanes.py).
    thread: the name of the program's thread that it is, or "". raised: where and what that has raised,
    which ended nothing but itself.
    """

    __slots__ = (
        "blocked_on", "carrier", "dying", "enabled", "failure", "fence_mark", "fresh", "index", "inject",
        "outstanding", "parked", "pending", "program", "raised", "rank", "reads", "rests", "result",
        "state", "stopped", "stream", "thread", "unwinds", "uses", "worker",
    )

    def __init__(
        self, index: int, program: Callable[[], Any], rank: int | None = None, worker: int = 0
    ) -> None:
        self.index = index
        self.rank = index if rank is None else rank
        self.worker = worker
        self.stream = self.rank + STREAMS * worker  # of random numbers
        self.program = program
        self.carrier: Any  # Carrier or ThreadCarrier
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
        self.uses: list[TensorUse] | None = None  # plain tensors in flight
        self.rests = False  # until it is roused; then it begins with an event of its own
        self.thread = self.raised = ""
        self.fresh = False  # begun during the run, and not chosen yet

    @property
    def idle(self) -> bool:
        """Whether it waits for work."""
        return self.state == "running" and self.blocked_on is not None and self.blocked_on[0] == "idle"

    @property
    def stuck(self) -> bool:
        """Whether it has not ended, and not for want of work."""
        return self.state == "running" and not self.idle


Alarm = tuple[float, int, int, Lane, Any]  # due, lane's number, its own, lane, what it waits in


class Waiting:
    """The lanes of a world and their blocking; the base of deliveries, choosing and running."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lane_count = size  # until the lanes are known
        self.events: list[RawEvent] = []
        self.awaited: dict[int, tuple[int, bool]] = {}  # by event: a wait's value, whether >=
        self.lanes: list[Lane] = []
        self.current: Lane = Lane(-1, lambda: None)  # until the first lane starts
        self.gate = True  # starting or stopping: points do not choose
        self._deviating = False
        self.slow = True  # gated, deviating, or with parked lanes: not the default run's fast path
        self._enabled_lanes = 0
        self._parked: list[Lane] = []
        self._looked = 0
        self._stale = 0
        self._sleepers: list[Alarm] = []
        self._alarms = 0
        self._now = 0.0
        self.event_seconds = EVENT_SECONDS
        self._arrivals: dict[Any, int] = {}

    def point(self, lane: Lane) -> None:
        """Return when `lane` is the owner that moves."""
        raise NotImplementedError

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

    def inject(self, lane: Lane, error: BaseException) -> None:
        """Have a lane raise `error` at its operation, whatever it waits for."""
        lane.inject = error
        if lane.parked:
            lane.parked = False
            self._parked.remove(lane)
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
        """How many have arrived at a rendezvous."""
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
        self.slow = True

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
        self.slow = self._deviating or self.gate

    def clock(self) -> float:
        """Virtual seconds since the run began: a microsecond an event, plus what was slept."""
        return self._now + len(self.events) * self.event_seconds

    def wake_at(self, lane: Lane, seconds: float) -> None:
        """Let a blocked lane go on in so many seconds, if it is still blocked in the same then."""
        self._alarms += 1
        due = self.clock() + seconds
        heappush(self._sleepers, (due, lane.index, self._alarms, lane, lane.blocked_on))

    def _wake(self) -> bool:
        """The next alarm, if there is one; virtual time goes on to it."""
        while self._sleepers:
            alarm = self._next_alarm()
            if alarm is None:
                return False
            due, _, _, lane, reason = alarm
            if lane.blocked_on is not reason or lane.enabled:
                continue  # what it waited for came first
            self._now = max(self._now, due)
            if reason is not None and reason[0] in ("wait", "work"):
                self.inject(lane, WaitExpired())
            else:
                self._unblock(lane)
            return True
        return False

    def _next_alarm(self) -> Alarm | None:
        """The next one, taken out; None if none may ring."""
        return heappop(self._sleepers)

    def sleep(self, seconds: float) -> None:
        """time.sleep of a rank program: costs virtual time only (of a host program: nothing)."""
        if not self._enabled_lanes and not self.lanes:
            return
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        lane = self.current
        self.block(lane, ("sleep", seconds, None, -1))  # a tuple of its own
        self.wake_at(lane, seconds)
        lane.pending = ("sleep",)
        self.point(lane)
        self.events.append((lane.index, "sleep", -1, lane.rank, 0, 0, None, -1, None, -1))
