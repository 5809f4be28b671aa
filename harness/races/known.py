"""A set of one-sided operations that are known to be complete: all below a number, and some above.

Operations are numbered in the order of their issue, and what happened long ago is known to all that
take part; so a set is a `base` (everything below it is in) and a mask of the few above it. Clocks of
long runs stay as small as what is in flight.

Not modelled: an operation that is in flight while WIDTH_MAX others are issued; from then on it counts
as complete. A program that never makes sure of an old notify would else need memory by the square of
its length.
"""

from __future__ import annotations

from collections.abc import Iterable

WIDTH_MAX = 8192
Span = tuple[int, int]  # a few operations: their offset, and a mask from there on


class Known:
    """Immutable; equal sets are equal. The lowest bit of `bits`, operation `base`, is not set."""

    __slots__ = ("base", "bits")

    def __init__(self, base: int = 0, bits: int = 0) -> None:
        beyond = bits.bit_length() - WIDTH_MAX
        if beyond > 0:
            base += beyond
            bits >>= beyond
        if bits & 1:
            ones = (bits ^ (bits + 1)).bit_length() - 1
            base += ones
            bits >>= ones
        self.base = base
        self.bits = bits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and (self.base, self.bits) == (other.base, other.bits)

    def __hash__(self) -> int:
        return hash((self.base, self.bits))

    def __repr__(self) -> str:
        return f"Known({self.base}, {self.bits:#b})"

    def has(self, op: int) -> bool:
        """Whether operation `op` is in the set."""
        return op < self.base or bool(self.bits >> (op - self.base) & 1)

    def __or__(self, other: Known) -> Known:
        if self.base < other.base:
            self, other = other, self
        bits = self.bits | other.bits >> (self.base - other.base)
        return self if bits == self.bits else Known(self.base, bits)

    def __and__(self, other: Known) -> Known:
        if self.base < other.base:
            self, other = other, self
        bits = other.bits & self.above(other.base)
        return other if bits == other.bits else Known(other.base, bits)

    def above(self, base: int) -> int:
        """The set as a mask of the operations from `base` on, which is at most its own."""
        gap = self.base - base
        return self.bits << gap | (1 << gap) - 1 if gap else self.bits

    def plus(self, span: Span) -> Known:
        """The set with a few operations more."""
        offset, more = span
        gap = offset - self.base
        bits = self.bits | (more << gap if gap >= 0 else more >> -gap)
        return self if bits == self.bits else Known(self.base, bits)

    def covers(self, other: Known, besides: int) -> bool:
        """Whether all of `other` is in the set, but for operation `besides`, which need not be."""
        gap = self.base - other.base
        rest = (other.bits >> gap if gap >= 0 else other.above(self.base)) & ~self.bits
        if besides >= self.base:
            rest &= ~(1 << (besides - self.base))
        return not rest


NOTHING = Known()
NONE: Span = (0, 0)


def span_of(ops: Iterable[int]) -> Span:
    """Some operations as a span."""
    numbers = list(ops)
    offset = min(numbers, default=0)
    return offset, sum(1 << (op - offset) for op in set(numbers))


def joined_spans(one: Span, other: Span) -> Span:
    """What is in one of two spans."""
    if not one[1]:
        return other
    if not other[1]:
        return one
    offset = min(one[0], other[0])
    return offset, one[1] << (one[0] - offset) | other[1] << (other[0] - offset)


def cut(span: Span, base: int) -> Span:
    """The part of a span from operation `base` on."""
    offset, bits = span
    return (base, bits >> (base - offset)) if offset < base else span
