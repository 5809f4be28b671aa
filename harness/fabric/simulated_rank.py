"""The operations of a rank on the simulated fabric.

Each one checks its arguments, announces itself (`point`), acts when it is chosen, and leaves one event
behind. Events of blocking operations are named after the operation when it completes; what precedes it
is `sync_arrive`, `window_arrive` or `get_issue`.
"""

from __future__ import annotations

import math
from types import CodeType
from typing import Any

import torch

from harness.errors import RankDied, UseAfterFree, WaitExpired, WrongArgument, WrongShape
from harness.fabric.flight import digest
from harness.fabric.lanes import POLL_OPERATIONS
from harness.fabric.memory import Buffer, Handle, Shape, Window, normal_shape
from harness.fabric.one_sided import OneSided, tensor_of
from harness.fabric.simulated import Simulation
from harness.fabric.windows import SharedWindows
from harness.interpose import Interposer
from harness.rank import Group, WaitCmp
from harness.record import VALUE_BYTES_MAX, Call


class RankState:
    """What the lanes of one rank have in common.

    counts: windows by group and name, and syncs by group (without a name), so far. calls: collective
    calls in order. lanes: the rank as each of its lanes sees it. torch_calls, torch_waits, printed: of a
    program of frontends/torch_distributed (record.py). notes: of one of frontends/pypto (its dfx.py).
    """

    __slots__ = ("calls", "counts", "lanes", "notes", "printed", "torch_calls", "torch_waits")

    def __init__(self) -> None:
        self.counts: dict[tuple[tuple[int, ...], str | None], int] = {}
        self.calls: list[Call] = []
        self.lanes: list[SimulatedRank] = []
        self.torch_calls: list[Any] = []
        self.torch_waits: dict[int, tuple[CodeType | None, int]] = {}
        self.printed: Any = None
        self.notes: list[Any] = []


class SimulatedRank(OneSided):
    """One rank's operations, as one of its lanes performs them."""

    def __init__(
        self, index: int, size: int, interposer: Interposer | None, simulation: Simulation,
        windows: SharedWindows, owner: int | None = None, state: RankState | None = None,
    ) -> None:
        super().__init__(index, size, interposer, simulation, windows, owner)
        self._state = RankState() if state is None else state
        self.lane = len(self._state.lanes)
        self._state.lanes.append(self)

    def _event(self, kind: str, window: int, peer: int, lo: int, hi: int, value: Any) -> None:
        self._events.append(
            (self._owner, kind, window, peer, lo, hi, value, -1, self._code, self._lasti)
        )

    def _plain(self, kind: str) -> None:
        self._events.append(
            (self._owner, kind, -1, self.index, 0, 0, None, -1, self._code, self._lasti)
        )

    # Memory -------------------------------------------------------------------------------------

    def _window(
        self, name: str, shape: Shape, dtype: torch.dtype, init: str | None, group: Group | None,
        byte_offset: int = 0,
    ) -> Window:
        if type(name) is not str or init not in (None, "zero", "poison"):
            given = f"name={name!r}" if type(name) is not str else f"init={init!r}"
            allowed = "a str" if type(name) is not str else "'zero', 'poison' or None"
            raise WrongArgument(f"rank {self.index}: window with {given}; {allowed} is due")
        members = self._members(f"window {name!r}", group) if group is not None else ()
        dims = normal_shape(shape, f"window {name!r}", self.index)
        self._dtype_check(f"window {name!r}", dtype)
        counts = self._state.counts
        occurrence = counts.get((members, name), 0)
        counts[members, name] = occurrence + 1
        key = (members, name, occurrence)
        lane = self._lane
        lane.pending = ("window_arrive",)
        self._sim.point(lane)
        self._called("window", f"{name!r} {list(dims)} {str(dtype)[6:]}", members)
        number = self._windows.collective(
            key, name, dims, dtype, members, zero=init == "zero" if init else dtype is torch.int32
        )
        self._event("window_arrive", number, self.index, 0, 0, members or None)
        self._meet(("window", key), "window", number, members)
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
        for lane in self._state.lanes:
            OneSided._died(lane)
            lane._lane.dying = True
            if lane is not self and lane._lane.stuck:
                self._sim.inject(lane._lane, RankDied())

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
            (self._owner, "free", window.number, self.index, 0, window.mine.nbytes, None, -1,
             self._code, self._lasti)
        )

    def _buffer(self, shape: Shape, dtype: torch.dtype) -> Buffer:
        dims = normal_shape(shape, "buffer", self.index)
        self._dtype_check("buffer", dtype)
        number = self._windows.own(self.index, dims, dtype)
        return Buffer(number, self._windows.names[number][1], self._windows.regions[number],
                      self.index, dims, dtype)

    def _load(self, src: Handle, at: int, shape: Shape) -> torch.Tensor:
        if not isinstance(src, Handle) or src.mine.freed:
            self._handle_check("load", src)
        if type(at) is not int:
            at = self._offset("load", at, src)
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
            (self._owner, "load", src.number, self.index, start - base, stop - base,
             bytes(data) if stop - start <= VALUE_BYTES_MAX else digest(bytes(data)), -1,
             self._code, self._lasti)
        )
        lane.reads += 1
        return tensor_of(data, src.dtype, count, dims)

    def _store(self, dst: Handle, value: torch.Tensor | float, at: int) -> None:
        self._handle_check("store", dst)
        if type(at) is not int:
            at = self._offset("store", at, dst)
        data = self._tensor_bytes("store", value, dst)
        if self._sim.uses and isinstance(value, torch.Tensor):
            self._sim.reading(self._lane, value, "store", self._code, self._lasti)
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
            (self._owner, "store", dst.number, self.index, start - base, stop - base, digest(data), -1,
             self._code, self._lasti)
        )
        lane.reads = 0
        if region.waiters:
            self._sim.wake(region)

    # Synchronisation ----------------------------------------------------------------------------

    def _wait(
        self, cell: Window, at: int, value: int, cmp: WaitCmp, timeout: float | None
    ) -> bool:
        if type(at) is not int:
            at = self._offset("wait", at, cell)
        if type(value) is not int or not -2147483648 <= value <= 2147483647:
            value = self._amount_check("wait", value)
        if (
            type(cell) is not Window or cell.dtype is not torch.int32
            or not 0 <= at < cell.numel or cell.start & 3 or cell.mine.freed
        ):
            self._cell_check("wait", cell, self.index, at)
        lane = self._lane
        sim = self._sim
        region = cell.mine
        slot = (cell.start >> 2) + at
        reached = cmp == 1  # WaitCmp.Ge
        if not reached and cmp != 0:
            self._mode("wait", "cmp", cmp, WaitCmp)
        held = region.cells[slot]
        lo = cell.offset + 4 * at
        lane.pending = ("wait", cell.number, self.index, lo, lo + 4)
        holds = held >= value if reached else held == value
        if holds and not (sim.slow or sim.due):  # nobody moves in between
            sim.point(lane)
            sim.awaited[len(self._events)] = value, reached
            self._events.append(
                (self._owner, "wait", cell.number, self.index, lo, lo + 4, held, -1, self._code,
                 self._lasti)
            )
            return True
        if timeout is not None and not timeout >= 0:
            raise WrongArgument(f"rank {self.index}: wait with timeout={timeout!r}; seconds >= 0 are due")
        if holds:
            lane.blocked_on = ("wait", cell.number, slot, value, reached, at, self._code, self._lasti)
        else:
            sim.block(lane, ("wait", cell.number, slot, value, reached, at, self._code, self._lasti))
            if timeout is not None:
                sim.wake_at(lane, timeout)
        region.waiters.append(lane)
        code, lasti = self._code, self._lasti
        try:
            sim.point(lane)
        except WaitExpired:
            self._events.append(
                (self._owner, "expired", cell.number, self.index, lo, lo + 4, region.cells[slot], -1,
                 code, lasti)
            )
            return False
        finally:
            region.waiters.remove(lane)
        lane.blocked_on = None
        sim.awaited[len(self._events)] = value, reached
        self._events.append(
            (self._owner, "wait", cell.number, self.index, lo, lo + 4, region.cells[slot], -1,
             self._code, self._lasti)
        )
        return True

    def _fence(self) -> None:
        lane = self._lane
        lane.pending = ("fence",)
        sim = self._sim
        sim.point(lane)
        lane.fence_mark = sim.issued
        self._events.append(
            (self._owner, "fence", -1, self.index, 0, 0, None, -1, self._code, self._lasti)
        )

    def _quiet(self) -> None:
        lane = self._lane
        lane.pending = ("quiet",)
        if lane.outstanding:
            self._sim.block(lane, ("quiet", self._code, self._lasti))
        self._sim.point(lane)
        lane.blocked_on = None
        self._plain("quiet")
        if lane.uses:
            self._sim.end_uses(lane)

    def _meet(
        self, key: Any, kind: str, window: int, members: tuple[int, ...], needed: int = 0
    ) -> None:
        """Arrive at a rendezvous of all members (of all ranks, of `needed`) and wait for the others."""
        code, lasti = self._code, self._lasti
        lane = self._lane
        needed = needed or len(members) or self.size
        lane.pending = (kind, window, self.index, 0, 0)
        self._sim.block(lane, ("meet", key, needed, members, code, lasti))
        self._sim.arrive(key, needed)
        self._sim.point(lane)
        lane.blocked_on = None
        self._events.append(
            (self._owner, kind, window, self.index, 0, 0, members or None, -1, code, lasti)
        )

    def _sync(self, group: Group | None, name: str = "sync") -> None:
        members = self._members(name, group) if group is not None else ()
        lane = self._lane
        lane.pending = ("sync_arrive",)
        self._sim.point(lane)
        self._called(name, "", members)
        self._event("sync_arrive", -1, self.index, 0, 0, members or None)
        count = self._state.counts.get((members, None), 0) + 1
        self._state.counts[members, None] = count
        self._meet(("sync", members, count), name, -1, members)

    def _barrier(self, group: Group | None) -> None:
        if group is not None:
            self._members("barrier", group)
        self._quiet()
        self._sync(group, "barrier")

    def _called(self, name: str, what: str, members: tuple[int, ...]) -> None:
        """Note a collective call."""
        self._state.calls.append((name, what, self._code, self._lasti, members, self.lane))

    def join(self, dispatch: int) -> None:
        """The end of a dispatch: the rank's lanes meet before any begins the next one."""
        lane = self._lane
        self._code, self._lasti = None, -1
        lane.pending = ("join_arrive",)
        self._sim.point(lane)
        self._plain("join_arrive")
        self._meet(("join", self.index, dispatch), "join", -1, (), len(self._state.lanes))
