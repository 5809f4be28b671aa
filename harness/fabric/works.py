"""Works in flight: what completes some time after it was asked for, by an event of its own.

An asynchronous collective of a program that was not written for us (frontends/) is one work a rank. It
is numbered like a one-sided operation, so Hold keeps it back and explorers choose when it completes; it
may complete when all it needs has come, which is the caller's to say. No fence or quiet orders it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

from harness.fabric.flight import Deliveries, InFlight
from harness.fabric.lanes import Lane
from harness.fabric.memory import Region

_NOWHERE = Region(0, zero=True)


class Work(InFlight):
    """A work in flight. complete: performs it; what it returns is the event's value."""

    def __init__(
        self, number: int, lane: Lane, name: str, complete: Callable[[], bytes | None],
        code: CodeType | None, lasti: int,
    ) -> None:
        super().__init__(number, "work", lane, lane.rank, -1, _NOWHERE, 0, 0, None, -1, code, lasti)
        self.name = name
        self.complete = complete
        self.waiters: list[Lane] = []


class Works(Deliveries):
    """A world's works."""

    def work(
        self, lane: Lane, name: str, complete: Callable[[], bytes | None], code: CodeType | None,
        lasti: int,
    ) -> Work:
        """A new work of a lane, not yet deliverable. name: of the operation that asked for it."""
        op = Work(self.issued, lane, name, complete, code, lasti)
        self.issued += 1
        if op.number in self._holds:
            op.release = self._holds[op.number]
        return op

    def work_may_complete(self, op: Work) -> None:
        """All it needs has come: from now on its completion is an event that may be chosen."""
        if op.enabled or op.done:
            return
        op.enabled = True
        if op.release > 0:
            op.release += len(self.events)
        self._open(op)

    def await_work(self, lane: Lane, op: Work, timeout: float | None = None) -> None:
        """Return when `op` is done. Raises WaitExpired after `timeout` virtual seconds.

        A scheduling point also when it is done already.
        """
        lane.pending = ("wait_work",)
        reason = ("work", op.number, op.name, op.code, op.lasti)
        if not op.done:
            self.block(lane, reason)
            op.waiters.append(lane)
            if timeout is not None:
                self.wake_at(lane, timeout)
        try:
            self.point(lane)
        finally:
            if lane in op.waiters:
                op.waiters.remove(lane)
            lane.blocked_on = None
        self.events.append(
            (lane.index, "wait_work", -1, lane.rank, 0, 0, None, op.number, op.code, op.lasti)
        )

    def _perform(self, op: InFlight) -> None:
        """A work's completion: one event."""
        assert isinstance(op, Work)
        value = op.complete()
        self.events.append(
            (self.lane_count + op.number, "complete", -1, op.peer, 0, 0, value, op.number, op.code,
             op.lasti)
        )
        op.done = True
        (self.due if op in self.due else self._held).remove(op)
        for lane in op.waiters:
            if lane.state == "running":
                self.unblock(lane)
