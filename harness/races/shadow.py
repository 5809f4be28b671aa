"""Who touched which bytes last: disjoint segments of each memory, split and merged as needed.

A segment keeps its last plain write, the reads since and the atomic writes since. A new access is
compared with those that it may conflict with; one that the new access covers is dropped where the new
one stands for it. Two atomic writes of one width and dtype do not conflict, unless one sets and the
other adds: the set may erase what was added.

Not modelled: bytes beyond the payload (guards), memory that two host tensors share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

PRUNE_AT = 16


class Access(NamedTuple):
    """One access to `memory` bytes lo..hi. op: the operation that does it in flight, or -1.

    kind: read, write, add or set (the last two are atomic, of `dtype`). at: its event. lane: whose.
    """

    at: int
    lane: int
    op: int
    kind: str
    window: int
    rank: int
    lo: int
    hi: int
    dtype: str = ""


class Segment:
    """What is remembered of bytes lo..hi."""

    __slots__ = ("atomics", "hi", "limit", "lo", "reads", "write")

    def __init__(self, lo: int, hi: int) -> None:
        self.lo = lo
        self.hi = hi
        self.write: Access | None = None
        self.reads: dict[int, Access] = {}
        self.atomics: list[Access] = []
        self.limit = PRUNE_AT

    def split(self, at: int) -> Segment:
        """Cut off and return the part from `at` on."""
        rest = Segment(at, self.hi)
        self.hi = at
        rest.write, rest.reads, rest.atomics = self.write, dict(self.reads), list(self.atomics)
        return rest


Covered = Callable[[Access], bool]


class Memory:
    """The segments of one memory, in order."""

    __slots__ = ("_starts", "segments")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self.segments: list[Segment] = []

    def touch(self, access: Access, covered: Covered) -> Iterator[Access]:
        """Note an access; yields the earlier ones that it conflicts with and does not cover."""
        if access.lo >= access.hi:
            return
        first, last = self._cut(access.lo, access.hi)
        segments = self.segments[first:last]
        for segment in segments:
            yield from _conflicts(segment, access, covered)
        if access.kind == "write":
            whole = segments[0]
            whole.hi = access.hi
            whole.write, whole.reads, whole.atomics = access, {}, []
            del self.segments[first + 1 : last], self._starts[first + 1 : last]
            return
        for segment in segments:
            if access.kind == "read":
                _note_read(segment, access, covered)
            else:
                _note_atomic(segment, access, covered)

    def _cut(self, lo: int, hi: int) -> tuple[int, int]:
        """The range of segments that are exactly the bytes lo..hi; gaps are filled."""
        starts, segments = self._starts, self.segments
        first = bisect_right(starts, lo) - 1
        if first >= 0 and segments[first].hi > lo:
            if starts[first] == lo and segments[first].hi == hi:
                return first, first + 1
            if starts[first] < lo:
                self._insert(first + 1, segments[first].split(lo))
                first += 1
        else:
            first += 1
        at, index = lo, first
        while at < hi:
            if index < len(segments) and starts[index] == at:
                if segments[index].hi > hi:
                    self._insert(index + 1, segments[index].split(hi))
            else:
                end = min(hi, starts[index]) if index < len(segments) else hi
                self._insert(index, Segment(at, end))
            at = segments[index].hi
            index += 1
        return first, index

    def _insert(self, index: int, segment: Segment) -> None:
        self.segments.insert(index, segment)
        self._starts.insert(index, segment.lo)


def _conflicts(segment: Segment, access: Access, covered: Covered) -> Iterator[Access]:
    if segment.write is not None and not covered(segment.write):
        yield segment.write
    if access.kind == "read":
        for other in segment.atomics:
            if not covered(other):
                yield other
        return
    for other in segment.reads.values():
        if not covered(other):
            yield other
    for other in segment.atomics:
        if (
            access.kind == "write" or other.kind != access.kind or other.dtype != access.dtype
        ) and not covered(other):
            yield other


def _note_read(segment: Segment, access: Access, covered: Covered) -> None:
    key = access.lane if access.op < 0 else ~access.op
    if len(segment.reads) >= segment.limit:
        segment.reads = {k: other for k, other in segment.reads.items() if not covered(other)}
        segment.limit = max(PRUNE_AT, 2 * len(segment.reads))
    segment.reads[key] = access


def _note_atomic(segment: Segment, access: Access, covered: Covered) -> None:
    if len(segment.atomics) >= segment.limit:
        kept = (o for o in segment.atomics if o.kind != access.kind or not covered(o))
        segment.atomics = list(kept)
        segment.limit = max(PRUNE_AT, 2 * len(segment.atomics))
    segment.atomics.append(access)
