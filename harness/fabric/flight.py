"""One-sided operations in flight: what is deliverable, what is held, and what a delivery does.

The rules are the table in fabric/memory.py. An operation is an owner of its own between issue and
delivery; a get has two events, read and land. Where puts and gets tear, each piece is an event of the
same owner, in order of address: deliver_part and read_part for all but the last one.

Not modelled: pieces in another order than that of their addresses, more than PIECES_MAX of them.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from operator import attrgetter
from types import CodeType
from typing import Any

import torch

from harness.fabric.caches import write_back
from harness.fabric.lanes import Lane, Waiting
from harness.fabric.memory import Region
from harness.fabric.tensors import TensorUse, overlap
from harness.plan import Hold, Preempt
from harness.record import VALUE_BYTES_MAX, Touched

PIECES_MAX = 8


class InFlight:
    """A one-sided operation between issue and delivery; an owner of its own."""

    # What most operations leave as it is stands on the class: an InFlight is made for each of them.
    value: Any = None  # put: the digest of its data
    atomic: torch.dtype | None = None
    source: tuple[Region, int] | None = None  # put_nbi: read at delivery
    local: tuple[Region, int, int] | None = None  # get: where it lands (region, start, window)
    signal: InFlight | None = None
    after: InFlight | None = None
    waiter: Lane | None = None
    special = False  # put: its data is known only at delivery, or it is delivered in pieces
    outer = -1  # line: where its data begins, at or before `start`
    grain = 4  # line: bytes of an element
    use: TensorUse | None = None  # the plain tensor that it reads or fills
    cuts: tuple[int, ...] = ()  # torn: where its pieces end, relative to `start`; the last is nbytes
    pieces = b""  # torn get: what it has read so far
    done_bytes = 0  # torn: delivered (or read) so far
    release = -1
    enabled = False
    done = False

    def __init__(
        self, number: int, kind: str, lane: Lane, peer: int, window: int, target: Region,
        start: int, nbytes: int, data: Any, mark: int, code: CodeType | None, lasti: int,
    ) -> None:
        self.number = number
        self.kind = kind  # "put", "add" (to a cell), "set" (a cell), "line" (of a cache), "get", "work"
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


_number = attrgetter("number")


class Deliveries(Waiting):
    """The operations in flight of a world, and the Holds that keep some of them back."""

    def __init__(
        self, size: int, schedule: Sequence[Hold | Preempt], *, eager: bool, torn: int = 0
    ) -> None:
        super().__init__(size)
        self.torn = torn
        self.uses: dict[int, TensorUse] = {}  # plain tensors in flight, by operation
        self.touched: list[Touched] = []
        self.issued = 0
        self.applied = 0  # deviations that took effect
        self.fetched: dict[int, int] = {}  # by the event of a load that saw an old copy: its fetch
        self.sources: dict[int, tuple[int, int]] = {}  # by operation: window, byte offset
        self._holds: dict[int, int] = {}
        for deviation in schedule:  # of two for the same operation the first counts
            if isinstance(deviation, Hold) and not eager:
                self._holds.setdefault(deviation.op, deviation.until)
        # By issuer * size + target; a large world mostly leaves most pairs alone.
        self._out: dict[int, dict[int, InFlight]] = defaultdict(dict)
        self._fenced: dict[int, deque[InFlight]] = defaultdict(deque)  # those behind a fence, in order
        self.due: list[InFlight] = []
        self._held: list[InFlight] = []
        self._releases: list[tuple[int, int, InFlight]] = []

    def issue(self, op: InFlight, *, ordered: bool) -> None:
        """Put an operation in flight. ordered: it is put-like, so fences order it."""
        lane = op.lane
        number = op.number
        lane.outstanding += 1
        self.issued = number + 1
        op.enabled = True
        if self.torn and op.nbytes > self.torn and op.kind in ("put", "get"):
            op.cuts = _cuts(op, self.torn)
            op.special = True
        if ordered:
            lane.reads = 0
            pair = lane.index * self.size + op.peer
            out = self._out[pair]
            if out and next(iter(out)) < op.mark:
                op.enabled = False
                self._fenced[pair].append(op)
            out[number] = op
        after = op.after
        if after is not None and not after.done:
            op.enabled = False
        if number in self._holds:
            op.release = self._holds[number]
            if op.release > 0:
                op.release += len(self.events)
        elif op.enabled:
            self.due.append(op)  # it is the youngest, so the list stays in order
            return
        if op.enabled:
            self._open(op)

    def use(self, op: InFlight, tensor: torch.Tensor, region: Region, *, fills: bool) -> None:
        """Look after the plain tensor that an operation just issued reads or fills."""
        op.special = True
        op.use = TensorUse(op.number, len(self.events) - 1, tensor, region, fills=fills)
        self.uses[op.number] = op.use
        if op.lane.uses is None:
            op.lane.uses = []
        op.lane.uses.append(op.use)

    def _look_at(self, use: TensorUse) -> None:
        touched = use.look(len(self.events))
        if touched is not None:
            self.touched.append(touched)

    def reading(self, lane: Lane, tensor: torch.Tensor, operation: str, code: Any, lasti: int) -> None:
        """A lane's own operation reads a plain tensor: tell it of a get that is still to fill it."""
        for use in self.uses.values():
            if use.fills and overlap(tensor, use.region.data):
                self.touched.append(
                    Touched(
                        use.number, len(self.events), f"before {use.stage}", use.version, use.version,
                        writes=False, by=f"rank.{operation}", lane=lane.index, code=code, lasti=lasti,
                    )
                )

    def end_uses(self, lane: Lane) -> None:
        """The lane is quiet, or the run is over: its tensors are in use no more."""
        for use in lane.uses or ():
            self._look_at(use)
            self.uses.pop(use.number, None)
        lane.uses = None

    def _open(self, op: InFlight) -> None:
        """The delivery rules allow `op` from now on: due at once, or held."""
        release = op.release
        if release < 0 or 0 < release <= len(self.events):
            if self.due and self.due[-1].number > op.number:
                insort(self.due, op, key=_number)
            else:
                self.due.append(op)
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
        kind = op.kind
        if kind == "get":
            self._fetch(op)
            return
        region = op.target
        start = op.start
        nbytes = op.nbytes
        if kind == "put":
            if op.special:
                self._deliver_piece(op)
                return
            value = op.value
            region.view[start : start + nbytes] = op.data
        elif kind != "add" and kind != "set":
            if kind == "line":
                write_back(self, op)
            else:
                self._perform(op)
            return
        else:
            value = op.data
            slot = start >> 2
            if kind == "add":
                value += region.cells[slot]
                if not -2147483648 <= value <= 2147483647:  # a cell wraps, as int32 does
                    value = ((value + 2147483648) & 4294967295) - 2147483648
            region.cells[slot] = value
        lo = start - region.base
        self.events.append(
            (self.lane_count + op.number, "deliver", op.window, op.peer, lo, lo + nbytes, value,
             op.number, op.code, op.lasti)
        )
        self.close(op)
        if region.waiters:
            self.wake(region)

    def _perform(self, op: InFlight) -> None:
        """Complete a work (works.py)."""
        raise NotImplementedError

    def _deliver_piece(self, op: InFlight) -> None:
        """All of a put whose data is known only now, or a piece of one that tears; the last one is its
        delivery."""
        region = op.target
        if op.use is not None:
            self._look_at(op.use)
        first, end = op.done_bytes, next((c for c in op.cuts if c > op.done_bytes), op.nbytes)
        data = self._late_data(op, first, end)
        region.view[op.start + first : op.start + end] = data
        op.done_bytes = end
        last = end == op.nbytes
        lo = op.start - region.base
        self.events.append(
            (self.lane_count + op.number, "deliver" if last else "deliver_part", op.window, op.peer,
             lo + first, lo + end, digest(data), op.number, op.code, op.lasti)
        )
        if last:
            if op.use is not None:
                op.use.passed()
            self.close(op)
        if region.waiters:
            self.wake(region)

    def _late_data(self, op: InFlight, first: int, end: int) -> bytes:
        """Bytes first..end of what a put writes, where they are known only now or in pieces."""
        data: bytes = op.data[first:end]
        if op.source is not None:
            source, begin = op.source
            data = bytes(source.view[begin + first : begin + end])
        if op.atomic is not None and data:
            data = _sum(op.target.view[op.start + first : op.start + end], data, op.atomic)
        return data

    def _fetch(self, op: InFlight) -> None:
        """The first event of a get reads at the target, the second lands."""
        owner = self.lane_count + op.number
        nbytes = op.nbytes
        if op.data is None and op.cuts:
            self._read_piece(op)
            return
        if op.data is None:
            region, start = op.target, op.start
            op.data = bytes(region.view[start : start + nbytes])
            lo = start - region.base
            self.events.append(
                (owner, "read", op.window, op.peer, lo, lo + nbytes, digest(op.data), op.number,
                 op.code, op.lasti)
            )
            return
        assert op.local is not None
        region, start, window = op.local
        if op.use is not None:
            self._look_at(op.use)
        region.view[start : start + nbytes] = op.data
        lo = start - region.base
        self.events.append(
            (owner, "land", window, op.lane.rank, lo, lo + nbytes, digest(op.data), op.number,
             op.code, op.lasti)
        )
        if op.use is not None:
            op.use.passed()
        self.close(op)
        if region.waiters:
            self.wake(region)

    def _read_piece(self, op: InFlight) -> None:
        """One piece of what a get that tears reads at its target."""
        region = op.target
        first, end = op.done_bytes, next(cut for cut in op.cuts if cut > op.done_bytes)
        piece = bytes(region.view[op.start + first : op.start + end])
        op.pieces += piece
        op.done_bytes = end
        last = end == op.nbytes
        if last:
            op.data = op.pieces
        lo = op.start - region.base
        self.events.append(
            (self.lane_count + op.number, "read" if last else "read_part", op.window, op.peer,
             lo + first, lo + end, digest(piece), op.number, op.code, op.lasti)
        )

    def close(self, op: InFlight) -> None:
        """Take a delivered operation out, and open what it stood in front of."""
        op.done = True
        lane = op.lane
        due = self.due
        if due and due[0] is op:
            del due[0]
        elif op in due:
            due.remove(op)
        else:
            self._held.remove(op)
        lane.outstanding -= 1
        if op.kind != "get":
            pair = lane.index * self.size + op.peer
            out = self._out[pair]
            if len(out) == 1:
                out.clear()
            else:
                was_first = next(iter(out)) == op.number
                del out[op.number]
                if was_first and pair in self._fenced:
                    self._open_fenced(next(iter(out)), self._fenced[pair])
            if op.signal is not None:
                self._open_signal(op.signal)
        elif op.waiter is not None and op.waiter.blocked_on is not None:
            self.unblock(op.waiter)
        if lane.blocked_on is not None and not lane.outstanding and lane.blocked_on[0] == "quiet":
            self.unblock(lane)

    def _open_signal(self, signal: InFlight) -> None:
        """The data of a put_signal has arrived: its signal may, if no fence keeps it."""
        if not signal.enabled:
            first = next(iter(self._out[signal.lane.index * self.size + signal.peer]))
            if first >= signal.mark or first == signal.number:
                signal.enabled = True
                self._open(signal)

    def _open_fenced(self, first: int, fenced: deque[InFlight]) -> None:
        """`first` is now the oldest of one rank's operations to one target: open what may go."""
        while fenced and fenced[0].mark <= first:
            other = fenced.popleft()
            # A signal whose data is in flight is opened when that has arrived.
            if not other.enabled and (other.after is None or other.after.done):
                other.enabled = True
                self._open(other)


def _cuts(op: InFlight, torn: int) -> tuple[int, ...]:
    """Where the pieces of a torn operation end: at multiples of `torn` bytes of the target window, at
    most PIECES_MAX pieces, none of which cuts an element of an atomic put."""
    lo = op.start - op.target.base
    if op.atomic is not None:
        torn = max(torn, op.atomic.itemsize)
    end = lo + op.nbytes
    first = lo - lo % torn + torn
    inside = range(first, end, torn)
    step = -(-len(inside) // (PIECES_MAX - 1)) if len(inside) >= PIECES_MAX else 1
    return (*(cut - lo for cut in inside[::step]), op.nbytes)


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
