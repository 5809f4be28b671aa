"""Synchronisation that comes late or not at all.

Each removes or moves one call that orders others. Barriers that a system builds from notify and
wait are not barrier calls: signals.py plants bugs in those.
"""

from __future__ import annotations

from faults.operations import CELL_AT
from harness import DeferAfter, Drop, Fault, Operation


class NotifyAfterWait(Fault, frozen=True, tag="notify_after_wait"):
    """A notify is issued only after the rank's next wait: the two calls are swapped.

    A put_signal moves with its data. Ranks that wait for each other's notify then block for ever.
    """

    def matches(self, op: Operation) -> bool:
        """Notifies and put_signals."""
        return op.kind in CELL_AT

    def rewrite(self, op: Operation) -> DeferAfter:
        """Perform it after this lane's next wait."""
        return DeferAfter("wait")


class DroppedFence(Fault, frozen=True, tag="dropped_fence"):
    """A fence is left out, so that a signal may overtake the data it announces."""

    def matches(self, op: Operation) -> bool:
        """Fences."""
        return op.kind == "fence"

    def rewrite(self, op: Operation) -> Drop:
        """Leave it out."""
        return Drop()


class DroppedQuiet(Fault, frozen=True, tag="dropped_quiet"):
    """A quiet is left out, so that the rank goes on while its operations are still in flight.

    The quiet inside a barrier call stays.
    """

    def matches(self, op: Operation) -> bool:
        """Calls of quiet."""
        return op.kind == "quiet"

    def rewrite(self, op: Operation) -> Drop:
        """Leave it out."""
        return Drop()


class SkippedBarrier(Fault, frozen=True, tag="skipped_barrier"):
    """The rank skips a barrier or sync call that the other ranks make."""

    def matches(self, op: Operation) -> bool:
        """Calls of barrier and sync."""
        return op.kind in ("barrier", "sync")

    def rewrite(self, op: Operation) -> Drop:
        """Leave it out."""
        return Drop()
