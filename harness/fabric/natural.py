"""Natural order: the processes run by themselves, with seeded pauses; here they are only watched.

The world is over when every rank has ended, or when nothing can move any more. The latter is seen
exactly: a rank that waits and has nothing left in flight says at which stamp of the world's counter it
last looked; when all of them looked at the present one, nobody will change anything. Then a rank that has
died frees the others with PeerLost, as in simulation; without one, the world is blocked.
"""

from __future__ import annotations

from harness.fabric.arena import ENDED, LOSTS, STAMP, STATE, STOP
from harness.fabric.conductor import Conductor
from harness.fabric.rank_engine import GO
from harness.record import Afterwards

LOOK_SECONDS = 0.005


class Natural(Conductor):
    """A world that runs in whatever order its processes make."""

    def run(self) -> None:
        """Start every rank, watch until all have ended or nobody can move."""
        self.natural = True
        self._enabled_lanes = self.lane_count
        words = self._arena.words
        self._waiting = set(range(self.size))
        for lane in self.lanes:
            lane.state = "running"
        for rank in range(self.size):
            self.ranks.send(rank, GO)
        self._gone: list[int] = []
        self.ranks.deadline.passed()
        stamp = -1
        while self._waiting:
            for rank in sorted(self._waiting):
                self._look(rank)
            if not self._waiting:
                break
            if words[STAMP] != stamp:
                stamp = words[STAMP]
                self.ranks.deadline.passed()
            elif self.ranks.deadline.left() <= 0:
                self._expire()
            if self._still() and not self._freed():
                self.ended = "blocked"
                words[STOP] = 1
                break
        self._collect()

    def _look(self, rank: int) -> None:
        """Wait a little for a rank to end."""
        woke = self.ranks.members[rank].woke(LOOK_SECONDS / len(self._waiting))
        if woke is None:
            return
        self._waiting.discard(rank)
        if not woke:
            self._gone.append(rank)
            self._arena.words[STATE + rank] = ENDED

    def _still(self) -> bool:
        """Whether every rank that has not ended waits, and has seen everything there is to see."""
        words = self._arena.words
        stamp = words[STAMP]
        states = [words[STATE + rank] for rank in self._waiting]
        return all(state == stamp for state in states) and words[STAMP] == stamp

    def _freed(self) -> bool:
        """Whether a death lets the waiting ranks go on."""
        words = self._arena.words
        dead = self._dead()
        if dead is None:
            return False
        for rank in self._waiting:
            words[LOSTS + rank] = dead + 1
        words[STAMP] += 1  # until each has been told, the world is not still
        return True

    def _dead(self) -> int | None:
        for rank in range(self.size):
            if rank not in self._waiting and rank not in self._gone:
                self.take(rank)
        dead = [lane.rank for lane in self.lanes if lane.state == "dead"]
        return min([*dead, *self._gone], default=None)

    def _expire(self) -> None:
        """A limit is over: the ranks that do not wait are to blame, or all."""
        words = self._arena.words
        busy = [rank for rank in sorted(self._waiting) if words[STATE + rank] != words[STAMP]]
        self.ended = "blocked"
        for rank in busy:  # what it was blocked in before says nothing
            self.take(rank)
            for lane in self.tellers[rank].lanes:
                lane.blocked_on = None
                lane.pending = ("next operation",)
        for rank in busy or sorted(self._waiting):
            self.ranks.expire(rank)
            self._waiting.discard(rank)
            self._gone.append(rank)
            words[STATE + rank] = ENDED
        words[STOP] = 1

    def _collect(self) -> None:
        """Read every rank's log and put the events into their order."""
        for rank in range(self.size):
            self.take(rank)
        self.settle()
        for lane in self.lanes:
            reason = lane.blocked_on
            if reason is not None and reason[0] == "meet":
                self._arrivals[reason[1]] = self._arena[self._arena.key(reason[1])]
        for rank in self._gone:
            self.lost(rank)

    def afterwards(self) -> dict[int, Afterwards]:
        """Not looked at in natural order."""
        return {}

    def stop(self) -> None:
        """Have every program that has not ended end."""
        for rank in sorted(self._waiting):
            if not self.ranks.members[rank].woke(self.ranks.deadline.left()):
                self.ranks.members[rank].wedged = True
            self.take(rank)
        self._late.clear()
        for lane in self.lanes:
            if lane.state == "running":
                lane.stopped = lane.stopped or (lane.pending, lane.blocked_on)
                lane.state = "unwound"


