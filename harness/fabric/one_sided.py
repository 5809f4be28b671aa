"""One-sided operations of a rank on the simulated fabric: checked, announced, issued."""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.errors import UseAfterFree, WrongDtype
from harness.fabric.entry_checks import EntryChecks
from harness.fabric.flight import InFlight, digest
from harness.fabric.lanes import POLL_OPERATIONS, Lane
from harness.fabric.memory import Handle, Shape, Window, normal_shape
from harness.fabric.simulated import Simulation
from harness.fabric.tensors import as_buffer
from harness.fabric.windows import SharedWindows
from harness.interpose import Interposer
from harness.rank import AtomicType, NotifyOp, Source
from harness.record import VALUE_BYTES_MAX, RawEvent

ATOMIC_ADD_DTYPES = frozenset(
    (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int16,
     torch.int8, torch.int64)
)


class OneSided(EntryChecks):
    """A rank's puts, gets, notifies and remote loads."""

    def __init__(
        self, index: int, size: int, interposer: Interposer | None, simulation: Simulation,
        windows: SharedWindows, owner: int | None = None,
    ) -> None:
        super().__init__(index, size, interposer)
        self._owner = index if owner is None else owner  # the number of its lane in events
        self._sim = simulation
        self._events: list[RawEvent] = simulation.events
        self._windows = windows
        self._lane: Lane

    def _source_check(self, operation: str, src: Handle, dst: Window) -> None:
        if src.mine.freed:
            raise UseAfterFree(f"rank {self.index}: {operation} from {src!r} after it was freed")
        if src.dtype is not dst.dtype:
            raise WrongDtype(
                f"rank {self.index}: {operation} of {src!r} into {dst!r}: dtypes differ"
            )

    def _put(
        self, dst: Window, peer: int, src: Source, at: int, atomic: AtomicType | None,
        operation: str = "put", *, late_source: bool = False,
    ) -> InFlight:
        """Check, announce and issue a put or another operation that is delivered like one."""
        if type(peer) is not int or type(at) is not int:
            peer, at = self._peer(operation, peer), self._offset(operation, at, dst)
        if type(dst) is not Window or not 0 <= peer < self.size or dst.mine.freed:
            self._window_check(operation, dst, peer)
        if isinstance(src, Handle):
            if src.mine.freed or src.dtype is not dst.dtype:
                self._source_check(operation, src, dst)
            nbytes = src.nbytes
            data = None
        else:
            data = self._tensor_bytes(operation, src, dst)
            nbytes = len(data)
            if self._sim.uses:
                self._sim.reading(self._lane, src, operation, self._code, self._lasti)
        size = dst.itemsize
        if at < 0 or at * size + nbytes > dst.nbytes:
            self._bounds(operation, dst, at, nbytes // size)
        if atomic:
            self._mode(operation, "atomic", atomic, AtomicType)
            if dst.dtype not in ATOMIC_ADD_DTYPES:
                raise WrongDtype(f"rank {self.index}: {operation} with atomic add into {dst!r}")
        lane = self._lane
        region = dst.regions[peer]
        if region is None:
            self._not_of_group(operation, dst, peer)
        start = dst.start + at * size
        lo = start - region.base
        hi = lo + nbytes
        window = dst.number
        lane.pending = (operation, window, peer, lo, hi)
        sim = self._sim
        sim.point(lane)
        if data is None:
            assert isinstance(src, Handle)
            data = bytes(src.mine.view[src.start : src.start + nbytes])
        number = sim.issued
        op = InFlight(
            number, "put", lane, peer, window, region, start, nbytes, data,
            lane.fence_mark, self._code, self._lasti,
        )
        value: Any = data if nbytes <= VALUE_BYTES_MAX else digest(data)
        op.value = value
        if atomic:
            op.special = True
            op.atomic = dst.dtype
            value = ("add", value)
        if isinstance(src, Handle):
            sim.sources[number] = src.number, src.start - src.mine.base
            if late_source:
                op.special = True
                op.source = src.mine, src.start
        self._events.append(
            (self._owner, operation, window, peer, lo, hi, value, number, self._code,
             self._lasti)
        )
        sim.issue(op, ordered=True)
        return op

    def _remote_store(
        self, win: Window, peer: int, value: torch.Tensor, at: int, atomic: AtomicType | None
    ) -> None:
        self._put(win, peer, value, at, atomic, "remote_store")

    def _put_nbi(
        self, dst: Window, peer: int, src: Source, at: int, atomic: AtomicType | None
    ) -> None:
        held = self._in_use("put_nbi", src)
        op = self._put(dst, peer, held, at, atomic, "put_nbi", late_source=True)
        if isinstance(src, torch.Tensor):
            self._sim.use(op, src, held.mine, fills=False)

    def _in_use(self, operation: str, given: Source) -> Handle:
        """A handle for memory that an operation uses while it is in flight."""
        if isinstance(given, torch.Tensor):
            self._dtype_check(operation, given.dtype)
            return as_buffer(self._windows, self.index, operation, given)
        self._handle_check(operation, given)
        return given

    def _put_signal(
        self, dst: Window, peer: int, src: Source, at: int, cell: Window, cell_at: int,
        amount: int, op: NotifyOp,
    ) -> InFlight:
        peer = self._peer("put_signal", peer)
        cell_at = self._offset("put_signal", cell_at, cell)
        self._mode("put_signal", "op", op, NotifyOp)
        self._cell_check("put_signal", cell, peer, cell_at)
        amount = self._amount_check("put_signal", amount)
        data = self._put(dst, peer, src, at, None, "put_signal")
        sim = self._sim
        signal = self._cell_op(cell, peer, cell_at, amount, op)
        signal.after = data
        data.signal = signal
        self._events.append(
            (self._owner, "signal", cell.number, peer, signal.start - cell.mine.base,
             signal.start - cell.mine.base + 4, amount, signal.number, self._code, self._lasti)
        )
        sim.issue(signal, ordered=True)
        return signal

    def _cell_op(self, cell: Window, peer: int, at: int, value: int, op: NotifyOp) -> InFlight:
        kind = "set" if op == NotifyOp.Set else "add"
        return InFlight(
            self._sim.issued, kind, self._lane, peer, cell.number, cell.regions[peer],
            cell.start + 4 * at, 4, value, self._lane.fence_mark, self._code, self._lasti,
        )

    def _notify(self, cell: Window, peer: int, at: int, value: int, op: NotifyOp) -> InFlight:
        if type(peer) is not int or type(at) is not int:
            peer, at = self._peer("notify", peer), self._offset("notify", at, cell)
        if (
            type(cell) is not Window or not 0 <= peer < self.size or cell.dtype is not torch.int32
            or not 0 <= at < cell.numel or cell.start & 3 or cell.mine.freed
            or cell.regions[peer] is None
        ):
            self._cell_check("notify", cell, peer, at)
        if type(value) is not int or not -2147483648 <= value <= 2147483647:
            value = self._amount_check("notify", value)
        lane = self._lane
        lo = cell.offset + 4 * at
        window = cell.number
        lane.pending = ("notify", window, peer, lo, lo + 4)
        sim = self._sim
        sim.point(lane)
        adds = op == 0  # NotifyOp.AtomicAdd
        if not adds and op != 1:
            self._mode("notify", "op", op, NotifyOp)
        number = sim.issued
        signal = InFlight(
            number, "add" if adds else "set", lane, peer, window, cell.regions[peer],
            cell.start + 4 * at, 4, value, lane.fence_mark, self._code, self._lasti,
        )
        self._events.append(
            (self._owner, "notify", window, peer, lo, lo + 4,
             value if adds else ("set", value), number, self._code, self._lasti)
        )
        sim.issue(signal, ordered=True)
        return signal

    def _read(self, operation: str, dst: Handle, peer: int, src: Window, at: int) -> InFlight:
        peer, at = self._peer(operation, peer), self._offset(operation, at, src)
        self._window_check(operation, src, peer)
        self._handle_check(operation, dst)
        if src.dtype is not dst.dtype:
            raise WrongDtype(f"rank {self.index}: {operation} of {src!r} into {dst!r}: dtypes differ")
        if at < 0 or at + dst.numel > src.numel:
            self._bounds(operation, src, at, dst.numel)
        lane = self._lane
        region = src.regions[peer]
        if region is None:
            self._not_of_group(operation, src, peer)
        start = src.start + at * src.itemsize
        lo = start - region.base
        issue = "get_issue" if operation == "get" else operation
        lane.pending = (issue, src.number, peer, lo, lo + dst.nbytes)
        sim = self._sim
        if lane.reads >= POLL_OPERATIONS:
            sim.polls(lane)
        sim.point(lane)
        lane.reads += 1
        op = InFlight(
            sim.issued, "get", lane, peer, src.number, region, start, dst.nbytes, None, 0,
            self._code, self._lasti,
        )
        op.local = (dst.mine, dst.start, dst.number)
        self._events.append(
            (self._owner, issue, src.number, peer, lo, lo + dst.nbytes, None, op.number, self._code,
             self._lasti)
        )
        sim.issue(op, ordered=False)
        return op

    def _get_nbi(self, dst: Source, peer: int, src: Window, at: int) -> None:
        held = self._in_use("get_nbi", dst)
        op = self._read("get_nbi", held, peer, src, at)
        if isinstance(dst, torch.Tensor):
            self._sim.use(op, dst, held.mine, fills=True)

    def _get(self, dst: Handle, peer: int, src: Window, at: int) -> None:
        code, lasti = self._code, self._lasti
        op = self._read("get", dst, peer, src, at)
        lane = self._lane
        op.waiter = lane
        lane.pending = ("get", src.number, peer, 0, 0)
        self._sim.block(lane, ("get", code, lasti))
        self._sim.point(lane)
        lane.blocked_on = None
        self._events.append((self._owner, "get", src.number, peer, 0, 0, None, -1, code, lasti))

    def _remote_load(self, win: Window, peer: int, at: int, shape: Shape) -> torch.Tensor:
        peer, at = self._peer("remote_load", peer), self._offset("remote_load", at, win)
        self._window_check("remote_load", win, peer)
        dims = normal_shape(shape, "remote_load", self.index)
        count = math.prod(dims)
        if at < 0 or at + count > win.numel:
            self._bounds("remote_load", win, at, count)
        lane = self._lane
        region = win.regions[peer]
        if region is None:
            self._not_of_group("remote_load", win, peer)
        start = win.start + at * win.itemsize
        stop = start + count * win.itemsize
        lo, hi = start - region.base, stop - region.base
        lane.pending = ("remote_load", win.number, peer, lo, hi)
        if lane.reads >= POLL_OPERATIONS:
            self._sim.polls(lane)
        self._sim.point(lane)
        data = region.view[start:stop]
        self._events.append(
            (self._owner, "remote_load", win.number, peer, lo, hi, digest(bytes(data)), -1,
             self._code, self._lasti)
        )
        lane.reads += 1
        return tensor_of(data, win.dtype, count, None if len(dims) == 1 else dims)


def tensor_of(
    data: memoryview, dtype: torch.dtype, count: int, dims: tuple[int, ...] | None
) -> torch.Tensor:
    """A tensor of its own with a copy of `data`."""
    if not count:
        return torch.empty(dims if dims is not None else (0,), dtype=dtype)
    tensor = torch.frombuffer(bytearray(data), dtype=dtype)
    return tensor if dims is None else tensor.view(dims)
