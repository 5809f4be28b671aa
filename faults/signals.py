"""Notifies and waits that are wrong in themselves. A put_signal counts as a notify.

Modelled: a signal lost, doubled, of the wrong operation or on the wrong cell; a threshold off by
one. Other wrong amounts are not modelled.
"""

from __future__ import annotations

from typing import Literal

from faults.operations import CELL_AT, cell_of, whole
from harness import Drop, Fault, NotifyOp, Operation, Twice


def _sets(op: Operation) -> bool:
    return whole(op.args["op"]) == NotifyOp.Set


class DroppedNotify(Fault, frozen=True, tag="dropped_notify"):
    """A notify is left out; a put_signal delivers its data, but its signal adds nothing."""

    def matches(self, op: Operation) -> bool:
        """Notifies, and put_signals whose signal changes its cell."""
        if op.kind == "put_signal":
            amount = whole(op.args["amount"])
            return amount is not None and (amount != 0 or _sets(op))
        return op.kind == "notify"

    def rewrite(self, op: Operation) -> Drop | Operation:
        """Leave it out, or signal 0."""
        if op.kind == "notify":
            return Drop()
        return op.with_args(amount=0, op=NotifyOp.AtomicAdd)


class DuplicatedNotify(Fault, frozen=True, tag="duplicated_notify"):
    """A notify is issued twice (a put_signal with its data)."""

    def matches(self, op: Operation) -> bool:
        """Notifies and put_signals."""
        return op.kind in CELL_AT

    def rewrite(self, op: Operation) -> Twice:
        """Perform it twice."""
        return Twice()


class WrongNotifyOp(Fault, frozen=True, tag="wrong_notify_op"):
    """A notify sets its cell instead of adding to it, or adds instead of setting."""

    def matches(self, op: Operation) -> bool:
        """Notifies and put_signals."""
        return op.kind in CELL_AT and whole(op.args["op"]) is not None

    def rewrite(self, op: Operation) -> Operation:
        """Set for AtomicAdd and the reverse."""
        return op.with_args(op=NotifyOp.AtomicAdd if _sets(op) else NotifyOp.Set)


class WrongCell(Fault, frozen=True, tag="wrong_cell"):
    """A notify goes to the cell after the right one (after the last comes the first)."""

    def matches(self, op: Operation) -> bool:
        """Notifies and put_signals on a window of two or more cells."""
        cell = cell_of(op)
        return cell is not None and 0 <= cell[0] < cell[1] and cell[1] > 1

    def rewrite(self, op: Operation) -> Operation:
        """The next cell."""
        cell = cell_of(op)
        assert cell is not None
        return op.with_args(**{CELL_AT[op.kind]: (cell[0] + 1) % cell[1]})


class ThresholdOffByOne(Fault, frozen=True, tag="threshold_off_by_one"):
    """A wait asks for one more than the right value (delta 1) or one less (delta -1).

    One more usually blocks for ever. One less usually shows only under a schedule in which the
    missing notify is late.
    """

    delta: Literal[-1, 1] = 1

    def matches(self, op: Operation) -> bool:
        """Waits."""
        return op.kind == "wait" and whole(op.args["value"]) is not None

    def rewrite(self, op: Operation) -> Operation:
        """The other threshold."""
        value = whole(op.args["value"])
        assert value is not None
        return op.with_args(value=value + self.delta)
