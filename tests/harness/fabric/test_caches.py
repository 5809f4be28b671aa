"""A core's cache by itself: which bytes a line is, what is written back, what its lane sees."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.fabric.caches import Cache, write_back
from harness.fabric.flight import InFlight
from harness.fabric.memory import Region


class Flights:
    """What a write-back asks of a world."""

    lane_count = 2

    def __init__(self):
        self.events = []

    def close(self, op):
        op.done = True


def written(region, lo, data):
    start = region.base + lo
    region.view[start : start + len(data)] = data


def line(cache, region, lo, data, *, whole, grain=4):
    lane = SimpleNamespace(blocked_on=None)
    op = InFlight(0, "set", lane, 1, 3, region, region.base + lo, len(data), None, 0, None, -1)
    cache.line(op, data, grain, whole=whole)
    return op


@pytest.mark.parametrize(
    ("nbytes", "lo", "count", "expected"),
    [(200, 0, 4, (0, 64)), (200, 60, 8, (0, 128)), (200, 64, 64, (64, 128)), (200, 196, 4, (192, 200)),
     (8, 4, 4, (0, 8)), (70, 65, 1, (64, 70))],
)
def test_a_line_is_64_bytes_of_the_payload(nbytes, lo, count, expected):
    region = Region(nbytes, zero=True)
    op = line(Cache(lines=True, stale=False), region, lo, bytes(count), whole=True)
    assert (op.outer - region.base, op.outer - region.base + len(op.data)) == expected
    narrow = line(Cache(lines=True, stale=False), region, lo, bytes(count), whole=False)
    assert (narrow.outer - region.base, len(narrow.data)) == (lo, count)


@pytest.mark.parametrize(
    ("changed", "grain", "expected"),
    [([], 4, []), ([9], 4, [(8, 12)]), ([9, 30], 4, [(8, 32)]), ([9, 50], 4, [(8, 12), (48, 52)]),
     ([9], 8, [(8, 16)]), ([63], 4, [(60, 64)])],
)
def test_what_a_write_back_takes_along_is_told_by_elements(changed, grain, expected):
    region = Region(64, zero=True)
    op = line(Cache(lines=True, stale=False), region, 40, b"\x05\0\0\0", whole=True, grain=grain)
    op.value = 5
    for at in changed:
        written(region, at, b"\x07")
    flights = Flights()
    write_back(flights, op)
    *others, delivered = flights.events
    assert [(e[1], e[4], e[5]) for e in others] == [("write_back", lo, hi) for lo, hi in expected]
    assert all(e[6] == bytes(e[5] - e[4]) for e in others)
    assert delivered[:7] == (2, "deliver", 3, 1, 40, 44, 5)
    assert region.payload() == bytes(40) + b"\x05" + bytes(23)
    assert op.done


def test_the_lane_sees_what_it_wrote_and_memory_does_not():
    region = Region(64, zero=True)
    cache = Cache(lines=True, stale=False)
    op = line(cache, region, 4, b"abcd", whole=True)
    assert cache.read(region, region.base + 2, region.base + 10, 0) == (b"\0\0abcd\0\0", -1)
    assert region.payload() == bytes(64)
    written(region, 8, b"z")
    assert cache.read(region, region.base + 2, region.base + 10, 0) == (b"\0\0abcdz\0", -1)
    op.done = True
    assert cache.read(region, region.base + 4, region.base + 8, 0) == (bytes(4), -1)


def test_only_what_overlaps_meets():
    region, other = Region(128, zero=True), Region(128, zero=True)
    cache = Cache(lines=True, stale=False)
    op = line(cache, region, 4, b"abcd", whole=False)
    base = region.base
    assert cache.meets(region, base + 7, base + 9, whole=False)
    assert not cache.meets(region, base + 8, base + 9, whole=False)
    assert cache.meets(region, base + 60, base + 61, whole=True)
    assert not cache.meets(region, base + 64, base + 65, whole=True)
    assert not cache.meets(other, base + 4, base + 8, whole=False)
    op.done = True
    assert not cache.meets(region, base + 4, base + 8, whole=False)


def test_a_copy_is_old_until_it_is_dropped():
    region = Region(100, zero=True)
    cache = Cache(lines=False, stale=True)
    base = region.base
    assert cache.read(region, base + 60, base + 68, 5) == (bytes(8), -1)
    written(region, 62, b"xyxy")
    assert cache.read(region, base + 60, base + 68, 9) == (bytes(8), 5)
    assert cache.read(region, base + 70, base + 71, 9) == (b"\0", -1), "it is as old, and as it is"
    cache.wrote(region, base + 66, b"w")
    assert cache.read(region, base + 60, base + 68, 9) == (b"\0" * 6 + b"w\0", 5)
    cache.invalidate()
    assert cache.read(region, base + 60, base + 68, 10) == (b"\0\0xyxy\0\0", -1)
