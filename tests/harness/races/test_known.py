"""Sets of operations against Python's own sets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.races.known import NONE, NOTHING, WIDTH_MAX, Known, cut, joined_spans, span_of

UP_TO = 24
numbers = st.sets(st.integers(0, UP_TO - 1))
some = settings(max_examples=300, deadline=None, database=None, derandomize=True)


def known(members):
    return Known(0, sum(1 << op for op in members))


def members(of):
    return {op for op in range(UP_TO) if of.has(op)}


@some
@given(numbers, numbers)
def test_union_and_intersection(one, other):
    a, b = known(one), known(other)
    assert members(a) == one
    assert a | b == known(one | other)
    assert a & b == known(one & other)
    assert hash(a | b) == hash(known(one | other))
    assert (a | a) is a
    assert (a & a) is a


@some
@given(numbers)
def test_the_lowest_member_above_the_base_is_not_the_base(one):
    found = known(one)
    assert not found.bits & 1
    assert all(found.has(op) for op in range(found.base))
    assert not found.has(found.base)


@some
@given(numbers, numbers, st.integers(-1, UP_TO))
def test_covers(one, other, besides):
    expected = other - {besides} <= one
    assert known(one).covers(known(other), besides) is expected


@some
@given(numbers, numbers, numbers, st.integers(0, UP_TO))
def test_spans(one, other, third, base):
    first, second = span_of(one), span_of(other)
    assert NOTHING.plus(first) == known(one)
    assert NOTHING.plus(joined_spans(first, second)) == known(one | other)
    assert known(third).plus(first) == known(third | one)
    kept = {op for op in one if op >= base}
    assert NOTHING.plus(cut(first, base)) == known(kept)


@some
@given(numbers, st.integers(0, UP_TO))
def test_above(one, base):
    found = known(one)
    if base <= found.base:
        assert found.above(base) == sum(1 << (op - base) for op in one if op >= base)


def test_what_is_in_flight_for_very_long_counts_as_complete():
    late = Known(0, 1 << WIDTH_MAX)  # that operation and none before it
    assert late.has(WIDTH_MAX)
    assert late.has(0)
    assert not late.has(1)
    assert late.bits.bit_length() == WIDTH_MAX


def test_the_empty_span():
    assert NOTHING.plus(NONE) is NOTHING
    assert span_of([]) == NONE
