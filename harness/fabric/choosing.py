"""Choosing the owner that moves next: the default rule, its deviations, explorers and guides.

Owners in order are lanes by index, then operations in flight by issue number. A contested point is one
with two or more enabled owners. Every choice is followed by exactly one event of its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol

from harness.errors import EngineError, PeerLost
from harness.fabric.flight import InFlight
from harness.fabric.lanes import Lane
from harness.fabric.works import Works
from harness.plan import Hold, Preempt

STALE_ROUNDS_MAX = 64

Owner = Lane | InFlight


class Chooser(Protocol):
    """An explorer's policy: asked at every point with two or more enabled owners."""

    def restart(self) -> None:
        """Forget the run so far: it is repeated, with the same choices."""
        ...

    def choose(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """The owner that moves next, one of `lanes` or `ops` (both in owner order)."""
        ...


class Choosing(Works):
    """A world that picks who moves. derived: the Preempts that a guide made necessary."""

    def __init__(
        self, size: int, schedule: Sequence[Hold | Preempt], *, eager: bool,
        chooser: Chooser | None, guide: Callable[[int], int] | None, events_max: int, torn: int = 0,
    ) -> None:
        super().__init__(size, schedule, eager=eager, torn=torn)
        self.points = 0
        self.ended = "returned"
        self.dead: list[int] = []
        self.polled: list[Lane] = []
        self.derived: list[Preempt] = []
        self._guide = guide
        self._chooser = chooser
        self._preempts: dict[int, int] = {}
        for deviation in schedule:  # of two for the same point the first counts
            if isinstance(deviation, Preempt):
                self._preempts.setdefault(deviation.at, deviation.to)
        self._deviating = bool(chooser or guide or self._holds or self._preempts)
        self._limit = events_max

    def _next(self) -> Lane | None:
        """Deliver what is chosen before it; then the lane that moves, or None when nobody can.

        The default run without deviations; `_next_deviating` is the same with them.
        """
        events = self.events
        due = self.due
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
        due = self.due
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
            choice: Owner
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
        ops = sorted(self.due + self._held, key=attrgetter("number")) if self._held else self.due
        return [lane for lane in self.lanes if lane.enabled], ops

    def _explore(self, count: int) -> Owner:
        lanes, ops = self._owners()
        if count == 1:
            return lanes[0] if lanes else ops[0]
        assert self._chooser is not None
        self.points += 1
        return self._chooser.choose(self, lanes, ops)

    def _deviate(self, default: Owner) -> Owner:
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

    def _others(self, default: Owner) -> list[Owner]:
        lanes, ops = self._owners()
        owners: list[Owner] = [*lanes, *ops]
        return [owner for owner in owners if owner is not default]

    def owner_number(self, owner: Owner) -> int:
        """The number of an owner in events: lanes first, then one-sided operations."""
        return owner.index if isinstance(owner, Lane) else self.lane_count + owner.number

    def lane_numbered(self, number: int) -> Lane | None:
        """The lane that has this owner's number during the run; None if an operation has it."""
        if number < 0:  # a late one's (late_lanes.py)
            return self.lanes[self.lane_count - 2 - number]
        return self.lanes[number] if number < self.lane_count else None

    def _bereft(self) -> list[Lane]:
        """Whom a death leaves without what they wait for."""
        return [lane for lane in self.lanes if lane.stuck]

    def _idle(self) -> bool:
        """Nobody is enabled: whether something outside the programs lets them go on."""
        if self._sleepers and self._wake():
            return True
        if self._parked and self._stale < STALE_ROUNDS_MAX:
            self._stale += 1
            self._unpark()
            return True
        if self.dead:
            blocked = self._bereft()
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
