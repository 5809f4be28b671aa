"""One-sided operations in flight: what is deliverable, what is held, and what a delivery does.

The rules are the table in fabric/memory.py. An operation is an owner of its own between issue and
delivery; a get has two events, read and land.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from operator import attrgetter
from types import CodeType
from typing import Any

import torch

from harness.fabric.lanes import Lane, Waiting
from harness.fabric.memory import Region
from harness.plan import Hold, Preempt
from harness.record import VALUE_BYTES_MAX


class InFlight:
    """A one-sided operation between issue and delivery; an owner of its own."""

    __slots__ = (
        "after", "atomic", "code", "data", "done", "enabled", "kind", "lane", "lasti", "local",
        "mark", "nbytes", "number", "peer", "release", "signal", "source", "start", "target",
        "value", "waiter", "window",
    )

    def __init__(
        self, number: int, kind: str, lane: Lane, peer: int, window: int, target: Region,
        start: int, nbytes: int, data: Any, mark: int, code: CodeType | None, lasti: int,
    ) -> None:
        self.number = number
        self.kind = kind  # "put", "add" (to a cell), "set" (a cell), "get"
        self.lane = lane
        self.peer = peer
        self.window = window
        self.target = target
        self.start = start
        self.nbytes = nbytes
        self.data = data
        self.mark = mark
        self.code = code
        self.lasti = lasti
        self.value: Any = None  # put: the digest of its data
        self.atomic: torch.dtype | None = None
        self.source: tuple[Region, int] | None = None  # put_nbi: read at delivery
        self.local: tuple[Region, int, int] | None = None  # get: where it lands (region, start, window)
        self.signal: InFlight | None = None
        self.after: InFlight | None = None
        self.waiter: Lane | None = None
        self.release = -1
        self.enabled = False
        self.done = False


_number = attrgetter("number")


class Deliveries(Waiting):
    """The operations in flight of a world, and the Holds that keep some of them back."""

    def __init__(self, size: int, schedule: Sequence[Hold | Preempt], *, eager: bool) -> None:
        super().__init__(size)
        self.issued = 0
        self.applied = 0  # deviations that took effect
        self._holds: dict[int, int] = {}
        for deviation in schedule:  # of two for the same operation the first counts
            if isinstance(deviation, Hold) and not eager:
                self._holds.setdefault(deviation.op, deviation.until)
        # By issuer * size + target; a large world mostly leaves most pairs alone.
        self._out: dict[int, dict[int, InFlight]] = defaultdict(dict)
        self._due: list[InFlight] = []
        self._held: list[InFlight] = []
        self._releases: list[tuple[int, int, InFlight]] = []

    def issue(self, op: InFlight, *, ordered: bool) -> None:
        """Put an operation in flight. ordered: it is put-like, so fences order it."""
        lane = op.lane
        number = op.number
        lane.outstanding += 1
        self.issued = number + 1
        op.enabled = True
        if ordered:
            lane.reads = 0
            out = self._out[lane.index * self.size + op.peer]
            if out and next(iter(out)) < op.mark:
                op.enabled = False
            out[number] = op
        after = op.after
        if after is not None and not after.done:
            op.enabled = False
        if number in self._holds:
            op.release = self._holds[number]
            if op.release > 0:
                op.release += len(self.events)
        elif op.enabled:
            self._due.append(op)  # it is the youngest, so the list stays in order
            return
        if op.enabled:
            self._open(op)

    def _open(self, op: InFlight) -> None:
        """The delivery rules allow `op` from now on: due at once, or held."""
        release = op.release
        if release < 0 or 0 < release <= len(self.events):
            if self._due and self._due[-1].number > op.number:
                insort(self._due, op, key=_number)
            else:
                self._due.append(op)
            return
        self.applied += 1
        insort(self._held, op, key=_number)
        if release > 0:
            heappush(self._releases, (release, op.number, op))

    def _release(self, clock: int) -> None:
        while self._releases and self._releases[0][0] <= clock:
            _, _, op = heappop(self._releases)
            if op in self._held:
                self._held.remove(op)
                op.release = -1
                self._open(op)

    def _deliver(self, op: InFlight) -> None:
        """Perform one event of an operation in flight."""
        lane = op.lane
        owner = self.size + op.number
        region = op.target
        start = op.start
        stop = start + op.nbytes
        kind = "deliver"
        window, peer, lo = op.window, op.peer, start - region.base
        if op.kind == "get":
            if op.data is None:
                op.data = bytes(region.view[start:stop])
                self.events.append(
                    (owner, "read", window, peer, lo, lo + op.nbytes, digest(op.data), op.number,
                     op.code, op.lasti)
                )
                return
            assert op.local is not None
            region, start, window = op.local
            stop = start + op.nbytes
            kind, peer, lo = "land", lane.index, start - region.base
            region.view[start:stop] = op.data
            value: Any = digest(op.data)
        elif op.kind == "add":
            total = region.cells[start >> 2] + op.data
            value = ((total + 2147483648) & 4294967295) - 2147483648
            region.cells[start >> 2] = value
        elif op.kind == "set":
            value = region.cells[start >> 2] = op.data
        else:
            data = op.data
            value = op.value
            if op.source is not None or op.atomic is not None:
                if op.source is not None:
                    source, begin = op.source
                    data = bytes(source.view[begin : begin + op.nbytes])
                if op.atomic is not None and data:
                    data = _sum(region.view[start:stop], data, op.atomic)
                value = digest(data)
            region.view[start:stop] = data
        self.events.append(
            (owner, kind, window, peer, lo, lo + op.nbytes, value, op.number, op.code, op.lasti)
        )
        self._close(op, lane)
        if region.waiters:
            self.wake(region)

    def _close(self, op: InFlight, lane: Lane) -> None:
        """Take a delivered operation out, and open what it stood in front of."""
        op.done = True
        due = self._due
        if due and due[0] is op:
            del due[0]
        elif op in due:
            due.remove(op)
        else:
            self._held.remove(op)
        lane.outstanding -= 1
        if op.kind != "get":
            out = self._out[lane.index * self.size + op.peer]
            if len(out) == 1:
                out.clear()
            else:
                was_first = next(iter(out)) == op.number
                del out[op.number]
                if was_first:
                    self._open_fenced(out)
        signal = op.signal
        if signal is not None and not signal.enabled:
            out = self._out[lane.index * self.size + signal.peer]
            if next(iter(out)) >= signal.mark or next(iter(out)) == signal.number:
                signal.enabled = True
                self._open(signal)
        waiter = op.waiter
        if waiter is not None and waiter.blocked_on is not None:
            self.unblock(waiter)
        if lane.blocked_on is not None and not lane.outstanding and lane.blocked_on[0] == "quiet":
            self.unblock(lane)

    def _open_fenced(self, out: dict[int, InFlight]) -> None:
        """The oldest of one rank's operations to one target is gone: open what stood behind it."""
        first = next(iter(out))
        for other in out.values():
            if other.mark > first and other.number != first:
                break
            if not other.enabled and (other.after is None or other.after.done):
                other.enabled = True
                self._open(other)


def digest(data: bytes) -> bytes:
    """What an event keeps of a value: the bytes, or their digest beyond 256."""
    if len(data) <= VALUE_BYTES_MAX:
        return data
    return blake2b(data, digest_size=16).digest()


def _sum(held: memoryview, data: bytes, dtype: torch.dtype) -> bytes:
    """Elementwise sum of two byte strings as `dtype`."""
    left = torch.frombuffer(bytearray(held), dtype=dtype)
    left += torch.frombuffer(bytearray(data), dtype=dtype)
    return left.view(torch.uint8).numpy().tobytes()
