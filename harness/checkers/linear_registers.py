"""Registers whose written values are all different: a verdict without a search, in n log n.

All operations of one value form a cluster: its write and the reads that returned it. From the first
return in it to the last call in it, if that is later, the register must hold the value (a forward zone);
otherwise all of the cluster may happen at one point between the last call and the first return (a
backward zone). The history is linearizable exactly if no read returns before its value's write is called
(or without one), no two forward zones overlap, and no backward zone lies inside a forward one. A block
that is written once is such a register, and so is any value that says who wrote it.

Source: Gibbons and Korach 1997, section 4.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from harness.checkers.linear_search import NEVER, Model, Op

FIRST = float("-inf")


class _Zone(NamedTuple):
    """What the operations of one value ask for: from `first`'s return to `last`'s call."""

    first: Op
    last: Op

    @property
    def low(self) -> float:
        return self.first.returned

    @property
    def high(self) -> float:
        return self.last.called


def register_verdict(ops: Sequence[Op], model: Model, before: Hashable) -> tuple[Op, ...] | None:
    """Operations that contradict each other, () where the history is linearizable; None: no register.

    before: the value that is there from the beginning.
    """
    writes: dict[Hashable, Op] = {before: Op(-1, None, "initial", called=FIRST, returned=FIRST)}
    reads: dict[Hashable, list[Op]] = {}
    for op in ops:
        seen = model.register(op)
        if seen is None:
            return None
        how, value = seen
        if how == "read":
            if op.returned != NEVER:
                reads.setdefault(value, []).append(op)
        elif value in writes:
            return None
        else:
            writes[value] = op
    zones = []
    for value, found in reads.items():
        write = writes.get(value)
        if write is None:
            return (found[0],)
        for read in found:
            if read.returned < write.called:
                return (read, write)
    for value, write in writes.items():
        found = [write, *reads.get(value, ())]
        if write.returned == NEVER and len(found) == 1:
            continue  # it may never have happened
        zones.append(
            _Zone(min(found, key=lambda op: op.returned), max(found, key=lambda op: op.called))
        )
    return tuple([op for op in _overlap(zones) if op.client >= 0 or op.key is not None])


def _overlap(zones: list[_Zone]) -> tuple[Op, ...]:
    """The four operations of two zones that cannot both be; () where there are none."""
    forward = sorted([zone for zone in zones if zone.low < zone.high], key=lambda zone: zone.low)
    for one, two in itertools.pairwise(forward):
        if two.low < one.high:
            return tuple(dict.fromkeys((*one, *two)))
    lows = [zone.low for zone in forward]
    for zone in zones:
        if zone.low >= zone.high:
            at = bisect.bisect_left(lows, zone.high) - 1
            if at >= 0 and zone.low < forward[at].high:
                return tuple(dict.fromkeys((*forward[at], *zone)))
    return ()


__all__ = ["register_verdict"]
