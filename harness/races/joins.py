"""What a wait on a counter may take for granted, whichever of the notifies reached it.

A wait for a sum of `need` is over when *some* notifies have brought it. By each clock component alone
the worst choice is the notifies that know least of it, so what every choice guarantees is a weighted
order statistic: with equal amounts the k-th smallest value of the component, k = how many it takes.
This is exact for each component as long as any notifies may be the first ones; choices that the
program's own order rules out need no care, as a notify knows what those before it know.

A clock has two parts: `lanes`, the last event of every lane that is known, and the set of the one-sided
operations that are known to be complete (known.py). An operation is in it or not, so the k-th smallest
is "in" where fewer than k notifies lack it. Source: algorithms.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_, or_

from harness.races.known import Known

Lanes = tuple[int, ...]
Clock = tuple[Lanes, Known]


def joined(clocks: Sequence[Clock]) -> Clock:
    """What is known to whoever has heard of all of them."""
    lanes = tuple(map(max, zip(*(clock[0] for clock in clocks), strict=True)))
    return lanes, reduce(or_, (clock[1] for clock in clocks))


def shared(clocks: Sequence[Clock]) -> Clock:
    """What is known to whoever has heard of one of them, whichever it was."""
    lanes = tuple(map(min, zip(*(clock[0] for clock in clocks), strict=True)))
    return lanes, reduce(and_, (clock[1] for clock in clocks))


def guaranteed(
    clocks: Sequence[Clock], amounts: Sequence[int], need: int, *, exact: bool = False
) -> Clock | None:
    """What every choice of `clocks` whose (positive) amounts sum up to `need` or more knows.

    exact: the sum is `need` itself. Returns None when no choice has that sum.
    """
    first = amounts[0] if amounts else 0
    if not amounts or any(amount != first for amount in amounts):
        return _weighted(clocks, amounts, need, exact=exact)
    count = -(-need // first)
    if count > len(clocks) or (exact and need % first):
        return None
    if count == len(clocks):
        return joined(clocks)
    if count == 1:
        return shared(clocks)
    lanes = tuple(
        sorted(column)[count - 1] for column in zip(*(clock[0] for clock in clocks), strict=True)
    )
    base = min(clock[1].base for clock in clocks)
    masks = [clock[1].above(base) for clock in clocks]
    return lanes, Known(base, _in_all_but(masks, count - 1))


def _in_all_but(masks: list[int], few: int) -> int:
    """The bits that at most `few` of the masks lack."""
    needed = len(masks) - few
    if needed <= few:
        return _at_least(masks, needed)
    union = reduce(or_, masks)
    return union & ~_at_least([union & ~mask for mask in masks], few + 1)


def _at_least(masks: list[int], count: int) -> int:
    """The bits that `count` or more of the masks have."""
    seen = [0] * (count + 1)  # by j: the bits that j masks so far have
    seen[0] = -1
    for mask in masks:
        for j in range(count, 0, -1):
            seen[j] |= seen[j - 1] & mask
    return seen[count]


def _weighted(
    clocks: Sequence[Clock], amounts: Sequence[int], need: int, *, exact: bool
) -> Clock | None:
    if not _reaches(amounts, need, exact=exact):
        return None
    lanes = []
    for column in zip(*(clock[0] for clock in clocks), strict=True):
        order = sorted(zip(column, amounts, strict=True))
        taken = next(
            k for k in range(1, len(order) + 1)
            if _reaches([amount for _, amount in order[:k]], need, exact=exact)
        )
        lanes.append(order[taken - 1][0])
    base = min(clock[1].base for clock in clocks)
    masks = [clock[1].above(base) for clock in clocks]
    found = 0
    union = reduce(or_, masks)
    while union:
        bit = union & -union
        union ^= bit
        without = [a for mask, a in zip(masks, amounts, strict=True) if not mask & bit]
        if not _reaches(without, need, exact=exact):
            found |= bit
    return tuple(lanes), Known(base, found)


def _reaches(amounts: Iterable[int], need: int, *, exact: bool) -> bool:
    """Whether some of the amounts sum up to `need` (or, not exact, to more)."""
    if not exact:
        return sum(amounts) >= need
    sums = 1  # bit s: some of them sum up to s
    for amount in amounts:
        sums |= sums << amount
        sums &= (1 << (need + 1)) - 1
    return bool(sums >> need & 1)
