"""A rank's own side of the processes fabric in natural order: nobody is asked who goes on.

The process takes the world's lock, performs its operation and lets go with its event (arena.py). What it
has in flight it delivers itself whenever it comes to an operation or waits, in an order and after pauses
that follow from a seed. So a put arrives some time after its call, as on a machine whose network makes
progress in calls. Waiting is short adaptive polling. Of several lanes of the rank (rank_lanes.py) the
seed chooses one that can go on.

Not modelled: progress while the program computes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from harness.ambient import nap, now
from harness.errors import PeerLost, Unwound, WaitExpired
from harness.fabric.arena import ENDED, LOSTS, RUNNING, STAMP, STATE, STOP, Arena, Telling
from harness.fabric.flight import Deliveries, InFlight
from harness.fabric.lanes import Lane
from harness.fabric.rank_engine import RankEngine

SPINS = 20  # before a waiting process sleeps
SLEEP_SECONDS = 50e-6
SLEEP_SECONDS_MAX = 2e-3
PAUSE_SECONDS_MAX = 1e-3
EAGERNESS = (1.0, 0.5, 0.05)  # chances of an operation to be delivered when its process looks
LEFT = ("new", "running")  # the states of a lane that has yet to end
WAITING = (False, None, False, None)  # not enabled, no arrival, no poll, no alarm


class NaturalEngine(RankEngine):
    """One rank's process in natural order. pauses: the seeded generator of it all."""

    natural = True

    def __init__(
        self, arena: Arena, rank: int, workers: Sequence[int], telling: Telling, commands: int,
        wakes: int, *, torn: int, pauses: Any,
    ) -> None:
        super().__init__(arena, rank, workers, telling, commands, wakes, torn=torn)
        self._pauses = pauses
        self._eagerness: dict[int, float] = {}  # by operation in flight
        self._alarms_at: dict[int, float] = {}  # by lane: when its wait ends

    def issue(self, op: InFlight, *, ordered: bool) -> None:
        """Put an operation in flight; whether it goes soon or late is the seed's."""
        Deliveries.issue(self, op, ordered=ordered)
        self._eagerness[op.number] = self._pauses.choice(EAGERNESS)

    def arrive(self, key: Any, needed: int) -> None:
        """Come to a rendezvous."""
        with self._arena.order:
            slot = self._arena.key(key)
            self._arena[slot] += 1
            self._arena.words[STAMP] += 1

    def wake_at(self, lane: Lane, seconds: float) -> None:
        """End the wait that begins after so many seconds."""
        self._alarms_at[lane.index] = now() + seconds

    def _turn(self, lane: Lane) -> None:
        """Wait until the operation can be performed; returns with the world's lock.

        Of a lane that has ended: when the rank's others have, too.
        """
        words, order = self._arena.words, self._arena.order
        self._pause()
        waited = 0
        chosen: Lane | None = None
        while True:
            left = [one for one in self.lanes if one.state in LEFT]
            if lane.state != "running" and not left:
                return
            if words[STOP]:
                if lane.state == "running":
                    lane.state = "unwinding"
                    raise Unwound
                self.carried.to(left[0])
                continue
            order.__enter__()
            op = self._drawn()
            if op is not None:
                self._deliver(op)
                order.give_all()
                waited = 0
                continue
            chosen = self._chosen(left, lane if chosen is not None else None)
            if chosen is not None:
                words[STATE + self.rank] = RUNNING
                if chosen is lane:
                    self._go_on(lane)
                    return
                order.give_all()
                self.carried.to(chosen)
                continue
            self._stand(left)
            order.give_all()
            waited += 1
            if waited > SPINS:
                nap(min(SLEEP_SECONDS * 2 ** min(waited - SPINS, 8), SLEEP_SECONDS_MAX))
            else:
                os.sched_yield()

    def _chosen(self, left: list[Lane], preferred: Lane | None) -> Lane | None:
        """A lane that can go on. preferred: the one that was just handed over to."""
        ready = [lane for lane in left if self._ready(lane)]
        if preferred in ready or len(ready) < 2:
            return preferred if preferred in ready else next(iter(ready), None)
        chosen: Lane = self._pauses.choice(ready)
        return chosen

    def _go_on(self, lane: Lane) -> None:
        """Let a lane perform its operation, or raise what has come instead."""
        self._alarms_at.pop(lane.index, None)
        if lane.inject is None:
            self._unblock_at(lane)
            return
        self._arena.order.give_all()
        self._unblock(lane)
        error, lane.inject = lane.inject, None
        raise self._lost(lane, error.rank) if isinstance(error, PeerLost) else error

    def _stand(self, left: list[Lane]) -> None:
        """No lane can go on: say so once, and look what the harness and the clock say. Holds the lock."""
        words = self._arena.words
        if not self._alarms_at and not self.due:
            if words[STATE + self.rank] == RUNNING:
                for lane in left:
                    told = self._told(lane.blocked_on)
                    self._telling.tell("point", lane.worker, lane.pending, told, *WAITING)
                self._telling.flush()
            words[STATE + self.rank] = words[STAMP]
        lost, words[LOSTS + self.rank] = words[LOSTS + self.rank], 0
        if lost:
            words[STATE + self.rank] = RUNNING
        for lane in left:
            if lost:
                lane.inject = PeerLost(lost - 1)
            elif self._alarms_at.get(lane.index, now() + 1) <= now():
                lane.inject = WaitExpired()

    def _unblock_at(self, lane: Lane) -> None:
        if not lane.enabled:
            lane.enabled = True
            self._enabled_lanes += 1

    def _ready(self, lane: Lane) -> bool:
        """Whether what the lane waits for has come."""
        reason = lane.blocked_on
        if reason is None or lane.inject is not None:
            return True
        if reason[0] == "wait":
            _, number, slot, value, reached = reason[:5]
            held = self.windows.regions[number][self.rank].cells[slot]
            return bool(held >= value if reached else held == value)
        if reason[0] == "meet":
            return self._arena[self._arena.key(reason[1])] >= int(reason[2])
        return not lane.outstanding if reason[0] == "quiet" else lane.enabled

    def _drawn(self) -> InFlight | None:
        """An operation to deliver now, if the seed says so: some go at once, some late."""
        op: InFlight
        for op in self._pauses.sample(self.due, len(self.due)):
            if self._pauses.random() < self._eagerness[op.number]:
                return op
        return None

    def _pause(self) -> None:
        """Now and then, a while in which the others go on."""
        draw = self._pauses.random()
        if draw < 0.1:
            nap(self._pauses.random() * PAUSE_SECONDS_MAX)
        elif draw < 0.4:
            os.sched_yield()

    def flush(self) -> None:
        """The first lane's program has ended: those of the others, and what is still in flight."""
        self._turn(self.lanes[0])
        while self.due:
            with self._arena.order:
                self._deliver(self._drawn() or self.due[0])
        self._arena.words[STATE + self.rank] = ENDED
