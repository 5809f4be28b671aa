"""The operations of a rank on the simulated fabric.

Each one checks its arguments, announces itself (`point`), acts when it is chosen, and leaves one event
behind. Events of blocking operations are named after the operation when it completes; what precedes it
is `sync_arrive`, `window_arrive` or `get_issue`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import string_at
from operator import index
from types import CodeType
from typing import Any

import torch

from harness.errors import (
    Misaligned, NonContiguous, OutOfBounds, UseAfterFree, WrongDtype, WrongHandle, WrongPeer,
    WrongShape,
)
from harness.fabric.memory import (
    ITEMSIZE, Buffer, Handle, Region, Shape, Window, normal_shape,
)
from harness.fabric.simulated import POLL_OPERATIONS, InFlight, Lane, Simulation, digest
from harness.interpose import Interposer
from harness.record import VALUE_BYTES_MAX
from harness.rank import AtomicType, NotifyOp, Rank, Source, WaitCmp

ATOMIC_ADD_DTYPES = frozenset(
    (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int16,
     torch.int8, torch.int64)
)


class SharedWindows:
    """The windows of one run: by number, and by (name, occurrence) for collective allocation."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.regions: list[Sequence[Region]] = []
        self.names: list[tuple[str, str, tuple[int, ...], torch.dtype]] = []
        self.by_call: dict[tuple[str, int], int] = {}

    def add(
        self, kind: str, name: str, shape: tuple[int, ...], dtype: torch.dtype,
        regions: Sequence[Region],
    ) -> int:
        """Register memory; returns its number."""
        self.regions.append(regions)
        self.names.append((kind, name, shape, dtype))
        return len(self.regions) - 1


class SimulatedRank(Rank):
    """One rank's operations; `lane` is its only worker."""

    def __init__(
        self, index: int, size: int, interposer: Interposer | None, simulation: Simulation,
        windows: SharedWindows,
    ) -> None:
        super().__init__(index, size, interposer)
        self._sim = simulation
        self._events = simulation.events
        self._windows = windows
        self._lane: Lane
        self._opened: dict[str, int] = {}
        self._syncs = 0
        self.calls: list[tuple[str, str, Any, int]] = []

    # Checks -------------------------------------------------------------------------------------

    def _window_check(self, operation: str, win: Any, peer: int) -> None:
        if type(win) is not Window:
            raise WrongHandle(
                f"rank {self.index}: {operation} needs a window, which every rank can reach; "
                f"given {win!r}"
            )
        if not 0 <= peer < self.size:
            raise WrongPeer(
                f"rank {self.index}: {operation} to peer {peer}; peers are 0..{self.size - 1}"
            )
        if win.mine.freed:
            raise UseAfterFree(f"rank {self.index}: {operation} on {win!r} after it was freed")

    def _bounds(self, operation: str, handle: Handle, at: int, count: int) -> None:
        raise OutOfBounds(
            f"rank {self.index}: {operation} of {count} elements at {at} in {handle!r}, which has "
            f"{handle.numel}"
        )

    def _handle_check(self, operation: str, handle: Any) -> None:
        if not isinstance(handle, Handle):
            raise WrongHandle(
                f"rank {self.index}: {operation} needs a window or buffer, given "
                f"{_short(handle)}; a tensor is not memory that the fabric knows"
            )
        if handle.mine.freed:
            raise UseAfterFree(f"rank {self.index}: {operation} on {handle!r} after it was freed")

    def _cell_check(self, operation: str, cell: Any, peer: int, at: int) -> None:
        self._window_check(operation, cell, peer)
        if cell.dtype is not torch.int32:
            raise WrongDtype(
                f"rank {self.index}: {operation} on {cell!r}: a cell is an int32 element"
            )
        if not 0 <= at < cell.numel:
            raise OutOfBounds(
                f"rank {self.index}: {operation} on cell {at} of {cell!r}, which has {cell.numel}"
            )
        if cell.start & 3:
            raise Misaligned(
                f"rank {self.index}: {operation} on {cell!r}, whose base is misaligned by "
                f"{cell.start & 3} bytes"
            )

    def _dtype_check(self, operation: str, dtype: Any) -> None:
        if dtype not in ITEMSIZE:
            try:
                ITEMSIZE[dtype]
            except WrongDtype as error:
                raise WrongDtype(f"rank {self.index}: {operation}: {error}") from None

    def _amount_check(self, operation: str, value: Any) -> int:
        """`value` as what an int32 cell can hold."""
        try:
            amount = index(value)
        except TypeError:
            raise WrongDtype(
                f"rank {self.index}: {operation} with {_short(value)}; a cell is an int32"
            ) from None
        if not -2147483648 <= amount <= 2147483647:
            raise OutOfBounds(
                f"rank {self.index}: {operation} with {amount}; a cell is an int32, -2147483648 to "
                "2147483647"
            )
        return amount

    def _tensor_bytes(self, operation: str, value: Any, dst: Handle) -> bytes:
        """The dense bytes of a tensor (or one number) for `dst`."""
        if not isinstance(value, torch.Tensor):
            if isinstance(value, int | float):
                value = torch.tensor(value, dtype=dst.dtype)
            else:
                raise WrongHandle(
                    f"rank {self.index}: {operation} needs a tensor or a number, given "
                    f"{_short(value)}"
                )
        if value.dtype is not dst.dtype:
            raise WrongDtype(
                f"rank {self.index}: {operation} of {str(value.dtype)[6:]} into {dst!r}; "
                f"convert with .to({dst.dtype})"
            )
        if not value.is_contiguous():
            raise NonContiguous(
                f"rank {self.index}: {operation} of a strided tensor, shape {list(value.shape)} "
                f"strides {list(value.stride())}; dense bytes are due: call .contiguous()"
            )
        if value.device.type != "cpu":
            value = value.detach().cpu()
        return string_at(value.data_ptr(), value.numel() * dst.itemsize)

    def _event(self, kind: str, window: int, peer: int, lo: int, hi: int, value: Any) -> None:
        self._events.append(
            (self.index, kind, window, peer, lo, hi, value, -1, self._code, self._lasti)
        )

    def _plain(self, kind: str) -> None:
        self._events.append(
            (self.index, kind, -1, self.index, 0, 0, None, -1, self._code, self._lasti)
        )

    # Memory -------------------------------------------------------------------------------------

    def _window(
        self, name: str, shape: Shape, dtype: torch.dtype, init: str | None, group: Any,
        byte_offset: int = 0,
    ) -> Window:
        if group is not None:
            self._sim.not_yet(f"rank {self.index}: window(group=...)")
        dims = normal_shape(shape, f"window {name!r}", self.index)
        self._dtype_check(f"window {name!r}", dtype)
        occurrence = self._opened.get(name, 0)
        self._opened[name] = occurrence + 1
        key = (name, occurrence)
        lane = self._lane
        lane.pending = ("window_arrive",)
        self._sim.point(lane)
        self.calls.append(("window", f"{name!r} {list(dims)} {str(dtype)[6:]}", self._code, self._lasti))
        number = self._windows.by_call.get(key)
        if number is None:
            zero = init == "zero" if init else dtype is torch.int32
            nbytes = math.prod(dims) * ITEMSIZE[dtype]
            regions = [Region(nbytes, zero=zero) for _ in range(self.size)]
            number = self._windows.add("window", name, dims, dtype, regions)
            self._windows.by_call[key] = number
        self._event("window_arrive", number, self.index, 0, 0, None)
        self._meet(("window", key), lane, "window", number)
        handle = self.bind(number, dims, dtype, 0)
        return handle.shifted(byte_offset) if byte_offset else handle

    def bind(self, number: int, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> Window:
        """This rank's handle of window `number`."""
        window = Window(
            number, self._windows.names[number][1], self._windows.regions[number], self.index,
            shape, dtype, offset,
        )
        if offset + window.nbytes > window.mine.nbytes and offset >= 0:
            raise WrongShape(
                f"rank {self.index}: {window!r} needs {window.nbytes} bytes at {offset}; the "
                f"other ranks allocated {window.mine.nbytes}"
            )
        window.on_free = self._free
        return window

    def _died(self) -> None:
        super()._died()
        self._lane.dying = True

    def _free(self, window: Window, code: CodeType, lasti: int) -> None:
        self._code = code
        self._lasti = lasti
        if self._faults:
            self._offer("free", self._end_life, window=window)
        else:
            self._end_life(window)

    def _end_life(self, window: Window) -> None:
        if window.mine.freed:
            raise UseAfterFree(f"rank {self.index}: free of {window!r}, which is freed already")
        self._lane.pending = ("free", window.number)
        self._sim.point(self._lane)
        window.mine.freed = True
        self._events.append(
            (self.index, "free", window.number, self.index, 0, window.mine.nbytes, None, -1,
             self._code, self._lasti)
        )

    def _buffer(self, shape: Shape, dtype: torch.dtype) -> Buffer:
        dims = normal_shape(shape, "buffer", self.index)
        self._dtype_check("buffer", dtype)
        nbytes = math.prod(dims) * ITEMSIZE[dtype]
        region = Region(nbytes, zero=False)
        number = self._windows.add("buffer", f"buffer{len(self._windows.names)}", dims, dtype,
                                   _Only(self.index, region))
        return Buffer(number, self._windows.names[number][1], self._windows.regions[number],
                      self.index, dims, dtype)

    def _load(self, src: Handle, at: int, shape: Shape) -> torch.Tensor:
        if not isinstance(src, Handle) or src.mine.freed:
            self._handle_check("load", src)
        if type(shape) is int:
            count, dims = shape, None
        else:
            dims = normal_shape(shape, "load", self.index)
            count = math.prod(dims)
        if at < 0 or count < 0 or at + count > src.numel:
            self._bounds("load", src, at, count)
        lane = self._lane
        size = src.itemsize
        start = src.start + at * size
        stop = start + count * size
        base = src.mine.base
        lane.pending = ("load", src.number, self.index, start - base, stop - base)
        if lane.reads >= POLL_OPERATIONS:
            self._sim.polls(lane)
        self._sim.point(lane)
        data = src.mine.view[start:stop]
        self._events.append(
            (self.index, "load", src.number, self.index, start - base, stop - base,
             bytes(data) if stop - start <= VALUE_BYTES_MAX else digest(bytes(data)), -1,
             self._code, self._lasti)
        )
        lane.reads += 1
        return _tensor(data, src.dtype, count, dims)

    def _store(self, dst: Handle, value: torch.Tensor | float, at: int) -> None:
        self._handle_check("store", dst)
        data = self._tensor_bytes("store", value, dst)
        size = dst.itemsize
        if at < 0 or at * size + len(data) > dst.nbytes:
            self._bounds("store", dst, at, len(data) // size)
        lane = self._lane
        region = dst.mine
        start = dst.start + at * size
        stop = start + len(data)
        base = region.base
        lane.pending = ("store", dst.number, self.index, start - base, stop - base)
        self._sim.point(lane)
        region.view[start:stop] = data
        self._events.append(
            (self.index, "store", dst.number, self.index, start - base, stop - base, digest(data), -1,
             self._code, self._lasti)
        )
        lane.reads = 0
        if region.waiters:
            self._sim.wake(region)

    # One-sided operations -----------------------------------------------------------------------

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
        if type(dst) is not Window or not 0 <= peer < self.size or dst.mine.freed:
            self._window_check(operation, dst, peer)
        if isinstance(src, Handle):
            self._source_check(operation, src, dst)
            nbytes = src.nbytes
        else:
            data = self._tensor_bytes(operation, src, dst)
            nbytes = len(data)
        size = dst.itemsize
        if at < 0 or at * size + nbytes > dst.nbytes:
            self._bounds(operation, dst, at, nbytes // size)
        if atomic and dst.dtype not in ATOMIC_ADD_DTYPES:
            raise WrongDtype(f"rank {self.index}: {operation} with atomic add into {dst!r}")
        lane = self._lane
        region = dst.regions[peer]
        start = dst.start + at * size
        lo = start - region.base
        hi = lo + nbytes
        lane.pending = (operation, dst.number, peer, lo, hi)
        sim = self._sim
        sim.point(lane)
        if isinstance(src, Handle):
            data = bytes(src.mine.view[src.start : src.start + nbytes])
        number = sim.issued
        op = InFlight(
            number, "put", lane, peer, dst.number, region, start, nbytes, data,
            lane.fence_mark, self._code, self._lasti,
        )
        value: Any = data if nbytes <= VALUE_BYTES_MAX else digest(data)
        op.value = value
        if atomic:
            op.atomic = dst.dtype
            value = ("add", value)
        if late_source:
            assert isinstance(src, Handle)
            op.source = src.mine, src.start
        self._events.append(
            (self.index, operation, dst.number, peer, lo, hi, value, number, self._code,
             self._lasti)
        )
        sim.issue(op, ordered=True)
        return op

    def _remote_store(
        self, win: Window, peer: int, value: torch.Tensor, at: int, atomic: AtomicType | None
    ) -> None:
        self._put(win, peer, value, at, atomic, "remote_store")

    def _put_nbi(
        self, dst: Window, peer: int, src: Handle, at: int, atomic: AtomicType | None
    ) -> None:
        self._handle_check("put_nbi", src)
        self._put(dst, peer, src, at, atomic, "put_nbi", late_source=True)

    def _put_signal(
        self, dst: Window, peer: int, src: Source, at: int, cell: Window, cell_at: int,
        amount: int, op: NotifyOp,
    ) -> None:
        self._cell_check("put_signal", cell, peer, cell_at)
        amount = self._amount_check("put_signal", amount)
        data = self._put(dst, peer, src, at, None, "put_signal")
        sim = self._sim
        signal = self._cell_op(cell, peer, cell_at, amount, op)
        signal.after = data
        data.signal = signal
        self._events.append(
            (self.index, "signal", cell.number, peer, signal.start - cell.mine.base,
             signal.start - cell.mine.base + 4, amount, signal.number, self._code, self._lasti)
        )
        sim.issue(signal, ordered=True)

    def _cell_op(self, cell: Window, peer: int, at: int, value: int, op: NotifyOp) -> InFlight:
        kind = "set" if op == NotifyOp.Set else "add"
        return InFlight(
            self._sim.issued, kind, self._lane, peer, cell.number, cell.regions[peer],
            cell.start + 4 * at, 4, value, self._lane.fence_mark, self._code, self._lasti,
        )

    def _notify(self, cell: Window, peer: int, at: int, value: int, op: NotifyOp) -> None:
        if (
            type(cell) is not Window or not 0 <= peer < self.size or cell.dtype is not torch.int32
            or not 0 <= at < cell.numel or cell.start & 3 or cell.mine.freed
        ):
            self._cell_check("notify", cell, peer, at)
        if type(value) is not int or not -2147483648 <= value <= 2147483647:
            value = self._amount_check("notify", value)
        lane = self._lane
        lo = cell.offset + 4 * at
        lane.pending = ("notify", cell.number, peer, lo, lo + 4)
        sim = self._sim
        sim.point(lane)
        adds = op == 0  # NotifyOp.AtomicAdd
        number = sim.issued
        signal = InFlight(
            number, "add" if adds else "set", lane, peer, cell.number, cell.regions[peer],
            cell.start + 4 * at, 4, value, lane.fence_mark, self._code, self._lasti,
        )
        self._events.append(
            (self.index, "notify", cell.number, peer, lo, lo + 4,
             value if adds else ("set", value), number, self._code, self._lasti)
        )
        sim.issue(signal, ordered=True)

    def _read(self, operation: str, dst: Handle, peer: int, src: Window, at: int) -> InFlight:
        self._window_check(operation, src, peer)
        self._handle_check(operation, dst)
        if src.dtype is not dst.dtype:
            raise WrongDtype(f"rank {self.index}: {operation} of {src!r} into {dst!r}: dtypes differ")
        if at < 0 or at + dst.numel > src.numel:
            self._bounds(operation, src, at, dst.numel)
        lane = self._lane
        region = src.regions[peer]
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
            (self.index, issue, src.number, peer, lo, lo + dst.nbytes, None, op.number, self._code,
             self._lasti)
        )
        sim.issue(op, ordered=False)
        return op

    def _get_nbi(self, dst: Handle, peer: int, src: Window, at: int) -> None:
        self._read("get_nbi", dst, peer, src, at)

    def _get(self, dst: Handle, peer: int, src: Window, at: int) -> None:
        code, lasti = self._code, self._lasti
        op = self._read("get", dst, peer, src, at)
        lane = self._lane
        op.waiter = lane
        lane.pending = ("get", src.number, peer, 0, 0)
        self._sim.block(lane, ("get", code, lasti))
        self._sim.point(lane)
        lane.blocked_on = None
        self._events.append((self.index, "get", src.number, peer, 0, 0, None, -1, code, lasti))

    def _remote_load(self, win: Window, peer: int, at: int, shape: Shape) -> torch.Tensor:
        self._window_check("remote_load", win, peer)
        dims = normal_shape(shape, "remote_load", self.index)
        count = math.prod(dims)
        if at < 0 or at + count > win.numel:
            self._bounds("remote_load", win, at, count)
        lane = self._lane
        region = win.regions[peer]
        start = win.start + at * win.itemsize
        stop = start + count * win.itemsize
        lo, hi = start - region.base, stop - region.base
        lane.pending = ("remote_load", win.number, peer, lo, hi)
        if lane.reads >= POLL_OPERATIONS:
            self._sim.polls(lane)
        self._sim.point(lane)
        data = region.view[start:stop]
        self._events.append(
            (self.index, "remote_load", win.number, peer, lo, hi, digest(bytes(data)), -1,
             self._code, self._lasti)
        )
        lane.reads += 1
        return _tensor(data, win.dtype, count, None if len(dims) == 1 else dims)

    # Synchronisation ----------------------------------------------------------------------------

    def _wait(self, cell: Window, at: int, value: int, cmp: WaitCmp) -> None:
        if (
            type(cell) is not Window or cell.dtype is not torch.int32
            or not 0 <= at < cell.numel or cell.start & 3 or cell.mine.freed
        ):
            self._cell_check("wait", cell, self.index, at)
        lane = self._lane
        sim = self._sim
        region = cell.mine
        slot = (cell.start >> 2) + at
        reached = cmp == WaitCmp.Ge
        held = region.cells[slot]
        lo = cell.offset + 4 * at
        lane.pending = ("wait", cell.number, self.index, lo, lo + 4)
        if held >= value if reached else held == value:
            lane.blocked_on = ("wait", cell.number, slot, value, reached, at, self._code, self._lasti)
        else:
            sim.block(lane, ("wait", cell.number, slot, value, reached, at, self._code, self._lasti))
        region.waiters.append(lane)
        try:
            sim.point(lane)
        finally:
            region.waiters.remove(lane)
        lane.blocked_on = None
        self._events.append(
            (self.index, "wait", cell.number, self.index, lo, lo + 4, region.cells[slot], -1,
             self._code, self._lasti)
        )

    def _fence(self) -> None:
        lane = self._lane
        lane.pending = ("fence",)
        sim = self._sim
        sim.point(lane)
        lane.fence_mark = sim.issued
        self._events.append(
            (self.index, "fence", -1, self.index, 0, 0, None, -1, self._code, self._lasti)
        )

    def _quiet(self) -> None:
        lane = self._lane
        lane.pending = ("quiet",)
        if lane.outstanding:
            self._sim.block(lane, ("quiet", self._code, self._lasti))
        self._sim.point(lane)
        lane.blocked_on = None
        self._plain("quiet")

    def _meet(self, key: Any, lane: Lane, kind: str, window: int) -> None:
        """Arrive at a rendezvous of all ranks and wait for the others."""
        code, lasti = self._code, self._lasti
        lane.pending = (kind, window, self.index, 0, 0)
        self._sim.block(lane, ("meet", key, code, lasti))
        self._sim.arrive(key, self.size)
        self._sim.point(lane)
        lane.blocked_on = None
        self._events.append((self.index, kind, window, self.index, 0, 0, None, -1, code, lasti))

    def _sync(self, group: Any, name: str = "sync") -> None:
        if group is not None:
            self._sim.not_yet(f"rank {self.index}: {name}(group=...)")
        lane = self._lane
        lane.pending = ("sync_arrive",)
        self._sim.point(lane)
        self.calls.append((name, "", self._code, self._lasti))
        self._plain("sync_arrive")
        self._syncs += 1
        self._meet(("sync", self._syncs), lane, name, -1)

    def _barrier(self, group: Any) -> None:
        self._quiet()
        self._sync(group, "barrier")


class _Only(Sequence[Region]):
    """The regions of a private buffer: one rank has one, the others have none."""

    def __init__(self, rank: int, region: Region) -> None:
        self._rank = rank
        self._region = region

    def __len__(self) -> int:
        return self._rank + 1

    def __getitem__(self, rank: Any) -> Any:
        if rank != self._rank:
            raise IndexError(rank)
        return self._region


def _tensor(
    data: memoryview, dtype: torch.dtype, count: int, dims: tuple[int, ...] | None
) -> torch.Tensor:
    """A tensor of its own with a copy of `data`."""
    if not count:
        return torch.empty(dims if dims is not None else (0,), dtype=dtype)
    tensor = torch.frombuffer(bytearray(data), dtype=dtype)
    return tensor if dims is None else tensor.view(dims)


def _short(value: object) -> str:
    text = repr(value).split("\n")[0]
    return text if len(text) <= 60 else text[:57] + "..."
