"""What a read of a cell acquires, by hand-made writes: lanes 0 (the owner), 1 and 2."""

from __future__ import annotations

from harness.races.cells import Cell, Write
from harness.races.known import Known

NOTHING = ((100, -1, -1), Known())


def cell_of(*writes):
    """writes: (issuer, event, operation, value, adds, lanes known, mask known)."""
    cell = Cell()
    for issuer, at, op, value, adds, lanes, mask in writes:
        write = Write(issuer, at, op, value, adds=adds)
        write.clock = (lanes, Known(0, mask))
        write.delivered = at + 1 if op >= 0 else at
        cell.add(write)
    cell.restart()
    return cell


def add(issuer, at, op, lanes, value=1, mask=0):
    return issuer, at, op, value, True, lanes, mask | 1 << op


def put_set(issuer, at, op, lanes, value, mask=0):
    return issuer, at, op, value, False, lanes, mask | 1 << op


def acquired(cell, value, clock=NOTHING, reached=True):
    found = cell.acquired(0, 100, clock, value, reached=reached)
    return None if found is None else (found[0], found[1].above(0))


def test_all_are_needed():
    cell = cell_of(add(1, 5, 0, (0, 5, 1)), add(2, 6, 1, (0, 2, 6)))
    assert acquired(cell, 2) == ((0, 5, 6), 0b11)


def test_one_of_two_guarantees_what_both_know():
    cell = cell_of(add(1, 5, 0, (0, 5, 1)), add(2, 6, 1, (0, 2, 6)))
    assert acquired(cell, 1) == ((0, 2, 1), 0)


def test_what_comes_only_after_the_wait_does_not_count():
    later = add(1, 120, 2, (110, 120, 1))  # it knows of event 110 of lane 0
    beside = add(1, 120, 2, (90, 120, 1))
    first = add(1, 5, 0, (0, 5, 1)), add(2, 6, 1, (0, 2, 6))
    assert acquired(cell_of(*first, later), 2) == ((0, 5, 6), 0b11)
    assert acquired(cell_of(*first, beside), 2) == ((0, 5, 1), 0)


def test_known_decrements_raise_what_is_needed():
    arrivals = add(1, 5, 0, (0, 5, 1)), add(2, 6, 1, (0, 2, 6))
    cleared = (0, 50, 2, -1, True, (50, -1, -1), 0b101)
    known = ((100, -1, -1), Known(0, 0b100))
    assert acquired(cell_of(*arrivals, cleared), 1, known) == ((0, 5, 6), 0b11)
    assert acquired(cell_of(*arrivals, cleared), 1) == ((0, 2, 1), 0), "it may come late"


def test_a_reset_drops_what_it_covers():
    arrival = add(1, 5, 0, (0, 5, 1))
    reset = (0, 50, -1, 0, False, (50, 5, 1), 0b1)
    again = add(1, 70, 1, (40, 70, 1), mask=0b1)
    known = ((100, 5, 1), Known(0, 0b1))
    assert acquired(cell_of(arrival, reset, again), 1, known) == ((40, 70, 1), 0b11)


def test_any_set_that_satisfies_may_be_the_one():
    first = put_set(1, 5, 0, (0, 5, 1), 2)
    second = put_set(1, 9, 1, (0, 9, 3), 3)
    assert acquired(cell_of(first, second), 2) == ((0, 5, 1), 0)
    assert acquired(cell_of(first, second), 3) == ((0, 9, 3), 0b10)
    assert acquired(cell_of(first, second), 3, reached=False) == ((0, 9, 3), 0b10)


def test_a_value_that_is_there_already_tells_nothing():
    cell = cell_of(add(1, 5, 0, (0, 5, 1)))
    assert acquired(cell, 0) is None
    assert acquired(cell, 1, ((100, 5, 1), Known(0, 0b1))) is None


def test_settled_writes_are_looked_at_once():
    """The k-th wait of many for the k-th notify: each tells of the k-th, and the head moves on."""
    cell = cell_of(*(add(1, 2 * k, k, (0, 2 * k, 0), mask=(1 << k) - 1) for k in range(50)))
    clock = NOTHING
    for k in range(49):
        found = cell.acquired(0, 1000, clock, k + 1, reached=True)
        assert found is not None
        assert found[0][1] == 2 * k
        clock = ((1000, *found[0][1:]), clock[1] | found[1])
    assert cell.readings[0].heads[1] >= 47
