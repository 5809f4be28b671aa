"""The simulated fabric: ranks as greenlets on one thread (or threads that take turns), virtual time,
deliveries as events.

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
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from harness.ambient import Ambient
from harness.errors import NoSchedulingPoint, PeerLost, RankDied, Unwound
from harness.fabric import carrier, threads
from harness.fabric.carrier import Carrier, watch
from harness.fabric.choosing import Chooser
from harness.fabric.flight import InFlight
from harness.fabric.frames import PACKAGE, user_frame, user_frame_of
from harness.fabric.lanes import EVENT_SECONDS, POLL_OPERATIONS, Lane
from harness.fabric.late_lanes import LateLanes
from harness.fabric.threads import LeftBehind, ThreadCarrier
from harness.fabric.torch_modes import Modes, end, modes, set_modes
from harness.plan import Hold, Preempt
from harness.record import Failure, Starved

EVENTS_MAX = 200_000
PROBE_EVENTS = 200


class Simulation(LateLanes):
    """One run's engine. Build it, add lanes, call `run`, read the fields."""

    def __init__(
        self, size: int, *, schedule: Sequence[Hold | Preempt] = (), eager: bool = False,
        chooser: Chooser | None = None, guide: Callable[[int], int] | None = None,
        events_max: int = EVENTS_MAX, swapping: bool = False, torn: int = 0, threaded: bool = False,
        event_seconds: float = EVENT_SECONDS,
    ) -> None:
        super().__init__(
            size, schedule, eager=eager, chooser=chooser, guide=guide, events_max=events_max,
            torn=torn,
        )
        self.threaded, self.event_seconds = threaded, event_seconds
        self.failures: list[Failure] = []
        self.peers_lost: list[int] = []
        self.stopping = False
        self.at_end: list[Callable[[], None]] = []  # called when all lanes have ended
        self.starved: list[Callable[[], Starved | None]] = []  # asked of a world that has stopped
        self.probed: Lane | None = None
        self._interrupt: BaseException | None = None
        self._fresh: Lane | None = None  # whom the hub turns to next
        self._hub: Any = threads.hub() if threaded else getcurrent()
        self._modes = modes()  # of the thread, as the run finds them
        self._moded = False  # whether any lane has left them
        self._guards: list[Any] = []
        self.ambient = Ambient(self.sleep, self.clock, swapping=swapping)

    # Running ------------------------------------------------------------------------------------

    def add_lane(
        self, program: Callable[[], Any], rank: int | None = None, worker: int = 0
    ) -> Lane:
        """A lane that runs `program()`; index = order of addition, which is by (rank, worker)."""
        lane = Lane(len(self.lanes), program, rank, worker)
        self.lanes.append(lane)
        return lane

    def run(self, when_blocked: Callable[[], None] | None = None) -> None:
        """Run every lane until all have returned, or nobody can move. Inside `ambient` only.

        when_blocked: called when lanes are still blocked, before they are unwound.

        Re-raises what a program could not have meant: Ctrl-C, a test's time limit, Hypothesis's stop.
        """
        self.lane_count = len(self.lanes)
        self._enabled_lanes = sum(lane.enabled for lane in self.lanes)
        if self.threaded:
            self._hub.interrupted, self._hub.given_up = self._told_to_stop, carrier.out_of_reach
        with watch(self):
            try:
                self._start()
                if self.lanes and not self.stopping:
                    self.current = self.lanes[0]
                    self._fresh = self._next()
                    while self._fresh is not None:
                        following, self._fresh = self._fresh, None
                        self._enter(following)
                if when_blocked is not None and not self.stopping and self.ended != "overrun":
                    self._still_blocked(when_blocked)
            finally:
                self._unwind()
                for put_back in self.at_end:
                    put_back()
                end(self._modes, self._guards)
        if self._interrupt is not None:
            raise self._interrupt

    def _still_blocked(self, when_blocked: Callable[[], None]) -> None:
        if any(lane.stuck and lane not in self.polled for lane in self.lanes):
            self.ended = "blocked" if self.ended == "returned" else self.ended
            self.gate = self.slow = True
            when_blocked()

    def release(self) -> None:
        """Break the world's reference cycles, so that it goes at once and not at some collection."""
        for lane in self.lanes:
            del lane.program
            if lane.state != "new":
                del lane.carrier
        self.struck = None
        self.starved.clear()
        del self.ambient

    def _start(self) -> None:
        """Run each lane up to its first operation, in order."""
        for lane in [one for one in self.lanes if not one.rests]:
            self._begin(lane)
            self._enter(lane)
            if self.ambient.swapping:
                self.ambient.leave(lane.stream)
            if modes() != self._modes:
                set_modes(self._modes, self._guards)
            if self.stopping:
                return
        self.gate = False
        self.slow = self._deviating or bool(self._parked)

    def rouse(self, lane: Lane) -> None:
        """There is work for a lane that rests, or is idle: it may be chosen from now on."""
        if not self.gate and (lane.rests or lane.idle):  # gated: what a probe after the run does
            if lane.rests:
                self._begin(lane)
            self.unblock(lane)

    def _enter(self, lane: Lane) -> None:
        self.current = lane
        if self.ambient.swapping:
            self.ambient.enter(lane.stream)
        self._turn_to(lane)

    def _begin(self, lane: Lane) -> None:
        lane.carrier = self._borrow()
        lane.carrier.job = self._job(lane)
        lane.state = "running"
        lane.rests = False

    def _borrow(self) -> Carrier | ThreadCarrier:
        if not self.threaded:
            return carrier.borrow()
        made = threads.borrow()
        made.greenlet.parent = self._hub
        return made

    def _turn_to(self, lane: Lane, error: type[BaseException] | None = None) -> None:
        """From the hub to a lane (raising `error` there); returns when the hub has the turn again."""
        baton = lane.carrier.greenlet
        try:
            if error is None:
                baton.switch()
            else:
                baton.throw(error)
        except LeftBehind:
            self._leave_behind(self.current)

    def _told_to_stop(self, error: BaseException) -> None:
        """A signal has struck the hub's thread while a lane has the turn."""
        self._interrupt = self._interrupt or error
        self.stopping = self.gate = self.slow = True
        if self.current.carrier is not None:
            threads.strike(self.current.carrier.greenlet)

    def _leave_behind(self, lane: Lane) -> None:
        """A lane's thread does not come back from native code: the run ends without it."""
        frame = lane.carrier.greenlet.gr_frame
        lane.carrier.greenlet.dead = True
        lane.state = "unwound"
        if self._interrupt is None:
            told = self._too_slow(lane, carrier.LIMIT_SECONDS)
            error = NoSchedulingPoint(f"{told}, and it does not come back from native code")
            lane.state = "raised"
            lane.failure = self._failure(lane, error, frame)
            self.failures.append(lane.failure)
        self.stopping = self.gate = self.slow = True

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
            self.stopping = self.gate = self.slow = True
        if self.stopping:  # whatever a program makes of Unwound is no failure of it
            lane.state = "unwound"
        elif lane.dying or isinstance(error, RankDied):
            lane.state = "dead"
            if lane.rank not in self.dead:
                self.dead.append(lane.rank)
            self.events.append((lane.index, "crash", -1, lane.rank, 0, 0, None, -1, None, -1))
        elif isinstance(error, PeerLost):
            lane.state = "peer_lost"
            if lane.rank not in self.peers_lost:
                self.peers_lost.append(lane.rank)
            lane.failure = self._failure(lane, error)
        else:
            if isinstance(error, NoSchedulingPoint | Unwound):  # both are the watchdog's
                told = self._too_slow(lane, carrier.LIMIT_SECONDS)
                error = NoSchedulingPoint(told).with_traceback(error.__traceback__)
            lane.state = "raised"
            lane.failure = self._failure(lane, error)
            self.failures.append(lane.failure)
            self.events.append((lane.index, "raise", -1, lane.rank, 0, 0, None, -1, None, -1))

    def _failure(
        self, lane: Lane, error: BaseException, stands: FrameType | None = None
    ) -> Failure:
        """stands: where the lane is, if it has not raised the error itself."""
        raised = traceback.extract_tb(error.__traceback__)
        stack = traceback.extract_stack(stands) if stands else raised
        frames = [frame for frame in stack if not frame.filename.startswith(PACKAGE)]
        text = "".join(traceback.format_list(frames)) + "".join(
            traceback.format_exception_only(error)
        )
        code, lasti = user_frame_of(stands) if stands else user_frame(error)
        return Failure(
            lane.index, lane.rank, len(self.events), error, text, code, lasti, str(lane.pending[0])
        )

    def _after(self, lane: Lane) -> greenlet:
        """A lane has ended: the greenlet that goes on."""
        if lane.enabled:
            lane.enabled = False
            self._enabled_lanes -= 1
        if lane.state != "unwound":  # what an unwound lane waited for is told from its pending
            lane.pending = ("ended",)
        self._leaving()  # it may not have put back what it had set
        self._carried_to_its_end(lane)
        if self.gate:
            return self._hub
        if self.ambient.swapping:
            self.ambient.leave(lane.stream)
        following = self._next()
        if following is None or not following.carrier.greenlet:
            self._fresh = following
            return self._hub
        self.current = following
        if self.ambient.swapping:
            self.ambient.enter(following.stream)
        return following.carrier.greenlet

    def _unwind(self) -> None:
        """End every lane that has not ended, in order; `stopping` makes their operations raise."""
        self.stopping = self.gate = self.slow = True
        for lane in [*self.lanes]:
            if lane.fresh:
                lane.state = "unwound"
            elif lane.state in ("running", "dropped"):
                if self.ended == "returned" and lane.stuck:
                    self.ended = "blocked"
                if lane.stopped is None:  # now, before `finally` blocks change it
                    lane.stopped = (lane.pending, lane.blocked_on)
                self.current = lane
                if not lane.carrier.greenlet.dead:
                    self._turn_to(lane, Unwound)
                if lane.state in ("running", "dropped"):  # it swallows every Unwound: its carrier is lost
                    lane.state = "unwound"
                    continue
            if lane.state != "new" and lane.carrier is not None:
                (threads if self.threaded else carrier).give_back(lane.carrier)

    # Switching ----------------------------------------------------------------------------------

    def point(self, lane: Lane) -> None:
        """Return when `lane` is the owner that moves."""
        if lane.enabled and not (self.slow or self.due) and len(self.events) < self._limit:
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
                lane.carrier.greenlet.parent.switch()
            raise Unwound
        if (
            self.probed is lane and len(self.events) < self._limit
            and (lane.enabled or self._passes(lane))
        ):
            return
        held = self._leaving()
        self._hub.switch()
        self._resumed(lane, held)

    def _passes(self, lane: Lane) -> bool:
        """A probed lane goes through what only its own operations could hold back."""
        if lane.blocked_on is None or lane.blocked_on[0] not in ("quiet", "get", "publish"):
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
            self.ambient.enter(lane.stream)
        self._turn_to(lane)
        self.probed = None

    def _switch(self, lane: Lane, following: Lane | None) -> None:
        held = self._leaving()
        swapping = self.ambient.swapping
        if swapping:
            self.ambient.leave(lane.stream)
        if following is None or not following.carrier.greenlet:
            self._fresh = following  # a greenlet that a lane started would stand on that lane's depth
            self._hub.switch()
        else:
            self.current = following
            if swapping:
                self.ambient.enter(following.stream)
            following.carrier.greenlet.switch()
        self._resumed(lane, held)

    def _leaving(self) -> Modes:
        """The modes of the lane that is switched away from, or has ended."""
        held = modes()
        if held != self._modes:
            self._moded = True
        return held

    def _resumed(self, lane: Lane, held: Modes) -> None:
        if self._moded and modes() != held:
            set_modes(held, self._guards)
        if lane.inject is not None:
            self._raise_injected(lane)

    def _raise_injected(self, lane: Lane) -> None:
        error, lane.inject = lane.inject, None
        assert error is not None
        self._unblock(lane)
        if isinstance(error, PeerLost):  # a death leaves its own event
            self.events.append((lane.index, "peer_lost", -1, lane.rank, 0, 0, None, -1, None, -1))
        raise error


__all__ = ["EVENTS_MAX", "Chooser", "InFlight", "Lane", "Simulation"]
