"""A core's cache, as far as a program can tell it from memory: rows N to S of fabric/memory.py.

A `Cache` belongs to one lane. It holds copies of 64-byte lines of the rank's own windows (`stale`), and
what the lane has written and memory does not have yet: stores, and lines that a Set is to write back.
The lane always sees what it wrote itself.

Not modelled: lines that are evicted (but for a lane that polls), copies of a peer's memory, caches in
front of buffers and host tensors, and two caches with the same line modified, which is why write-backs
take effect whole: the later one wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.record import RawEvent

if TYPE_CHECKING:
    from harness.fabric.flight import Deliveries, InFlight
    from harness.fabric.memory import Region

LINE_BYTES = 64


class Cache:
    """One lane's. lines, stale: the switches of the plan. unpublished: stores since the last publish."""

    def __init__(self, *, lines: bool, stale: bool) -> None:
        self.lines = lines
        self.stale = stale
        self.unpublished: list[InFlight] = []
        self._flying: list[InFlight] = []  # stores and Sets that memory may not have yet
        # By region and line: the copy, and before which event it was fetched.
        self._copies: dict[Region, dict[int, tuple[bytearray, int]]] = {}

    def meets(self, region: Region, start: int, stop: int, *, whole: bool) -> bool:
        """Whether what this lane is to write to bytes start..stop (whole: with the rest of their lines)
        overlaps with what it wrote before and memory does not have yet."""
        self._flying = [op for op in self._flying if not op.done]
        lo, hi = _lines_of(region, start, stop) if whole else (start, stop)
        return any(
            op.target is region and op.outer < hi and lo < op.outer + len(op.data)
            for op in self._flying
        )

    def line(self, op: InFlight, data: bytes, grain: int, *, whole: bool) -> None:
        """Make `op`, just issued or about to be, write `data` back; whole: with the rest of its lines, as
        they are here now."""
        region, start = op.target, op.start
        lo, hi = start, start + op.nbytes
        if whole:
            lo, hi = _lines_of(region, lo, hi)
        content, _ = self.read(region, lo, hi, -1)
        op.kind, op.outer, op.grain = "line", lo, grain
        op.data = content[: start - lo] + data + content[start - lo + op.nbytes :]
        self._flying.append(op)

    def read(self, region: Region, start: int, stop: int, now: int) -> tuple[bytes, int]:
        """What the lane sees at start..stop, and the event of the fetch if that is old (else -1).

        now: the event that reads, which fetches what is not here; -1 = fetch nothing.
        """
        current = self._written(region, start, stop)
        copies = self._copies.setdefault(region, {}) if self.stale else None
        if copies is None or start == stop:
            return bytes(current), -1
        base, fetched = region.base, -1
        for line in range((start - base) // LINE_BYTES, (stop - base - 1) // LINE_BYTES + 1):
            first = base + line * LINE_BYTES
            last = min(first + LINE_BYTES, base + region.nbytes)
            if line not in copies:
                if now >= 0:
                    copies[line] = self._written(region, first, last), now
                continue
            held, since = copies[line]
            lo, hi = max(first, start), min(last, stop)
            part = held[lo - first : hi - first]
            if part != current[lo - start : hi - start]:
                current[lo - start : hi - start] = part
                fetched = since if fetched < 0 else min(fetched, since)
        return bytes(current), fetched

    def _written(self, region: Region, start: int, stop: int) -> bytearray:
        """Memory, and over it what this lane wrote."""
        data = bytearray(region.view[start:stop])
        for op in self._flying:
            if op.target is region and not op.done:
                lo, hi = max(start, op.start), min(stop, op.start + op.nbytes)
                if lo < hi:
                    data[lo - start : hi - start] = op.data[lo - op.outer : hi - op.outer]
        return data

    def wrote(self, region: Region, start: int, data: bytes) -> None:
        """The lane stored `data`: its copies have it too."""
        base = region.base
        for line, (held, _) in self._copies.get(region, {}).items():
            first = base + line * LINE_BYTES
            lo, hi = max(start, first), min(start + len(data), first + len(held))
            if lo < hi:
                held[lo - first : hi - first] = data[lo - start : hi - start]

    def invalidate(self) -> None:
        """Drop every copy; what the lane wrote stays its own."""
        self._copies.clear()


def _lines_of(region: Region, start: int, stop: int) -> tuple[int, int]:
    """The lines in which bytes start..stop of a region lie, within its payload."""
    base = region.base
    first = (start - base) // LINE_BYTES * LINE_BYTES
    last = -((base - stop) // LINE_BYTES) * LINE_BYTES
    return base + first, base + min(last, region.nbytes)


def write_back(flights: Deliveries, op: InFlight) -> None:
    """Perform the delivery of a line: all of it goes to memory, whatever that holds by now.

    Where this changes bytes that nobody stored, a write_back event says so, before that of the delivery.
    """
    region, start, stop = op.target, op.start, op.start + op.nbytes
    outer, end = op.outer, op.outer + len(op.data)
    owner = flights.lane_count + op.number
    base = region.base
    for first, last in ((outer, start), (stop, end)):
        changed = _changed(region.view[first:last], op.data[first - outer : last - outer])
        if changed is not None:
            lo = (first + changed[0] - base) // op.grain * op.grain
            hi = min(-((base - first - changed[1]) // op.grain) * op.grain, end - base)
            data = op.data[lo + base - outer : hi + base - outer]
            flights.events.append(_event(owner, "write_back", op, lo, hi, data))
    region.view[outer:end] = op.data
    value: Any = op.value
    flights.events.append(_event(owner, "deliver", op, start - base, stop - base, value))
    flights.close(op)
    if region.waiters:
        flights.wake(region)
    reason = op.lane.blocked_on
    if reason is not None and reason[0] == "publish" and all(one.done for one in reason[1]):
        flights.unblock(op.lane)


def _event(owner: int, kind: str, op: InFlight, lo: int, hi: int, value: Any) -> RawEvent:
    return owner, kind, op.window, op.peer, lo, hi, value, op.number, op.code, op.lasti


def _changed(before: memoryview, after: bytes) -> tuple[int, int] | None:
    """The range in which two byte strings of one length differ."""
    if before == after:
        return None
    differing = [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    return differing[0], differing[-1] + 1
