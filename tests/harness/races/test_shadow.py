"""Segments of memory against a plain array of bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.races.shadow import Access, Memory

KINDS = ("read", "write", "add", "set")


def conflict(one, other):
    if {one, other} <= {"read"}:
        return False
    return one != other or one == "write"


accesses = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 12), st.integers(0, 8), st.integers(0, 2)),
    max_size=14,
)


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(drawn=accesses)
def test_nothing_covered_is_as_byte_by_byte(drawn):
    """Lanes that know nothing of each other: each byte keeps its last write and all since then."""
    memory, held = Memory(), {}
    for at, (kind, lo, length, lane) in enumerate(drawn):
        access = Access(at, lane, -1, kind, 0, 0, lo, lo + length, "int32")
        seen = set(memory.touch(access, lambda other, lane=lane: other.lane == lane))
        due = set()
        for byte in range(lo, lo + length):
            past = held.setdefault(byte, [])
            due |= {o for o in past if conflict(o.kind, kind) and o.lane != lane}
            if kind == "write":
                past.clear()
            if kind == "read":  # a lane's later read stands for its earlier ones
                past[:] = [o for o in past if (o.kind, o.lane) != ("read", lane)]
            past.append(access)
        assert seen == due


def test_covered_reads_and_notifies_are_forgotten():
    memory = Memory()
    for at in range(1000):
        for kind in ("read", "add"):
            access = Access(at, 0, at, kind, 0, 0, 0, 4, "int32")
            assert list(memory.touch(access, lambda other: True)) == []
    (segment,) = memory.segments
    assert len(segment.reads) + len(segment.atomics) < 50


def test_a_write_merges_what_it_covers():
    memory = Memory()
    for at in range(8):
        list(memory.touch(Access(at, 0, -1, "read", 0, 0, 4 * at, 4 * at + 4), lambda other: True))
    assert len(memory.segments) == 8
    list(memory.touch(Access(9, 0, -1, "write", 0, 0, 2, 30), lambda other: True))
    assert [(segment.lo, segment.hi) for segment in memory.segments] == [(0, 2), (2, 30), (30, 32)]
