"""A rank whose cores have caches (fabric/caches.py): rows N to S of fabric/memory.py.

Publish and invalidate stand where PyPTO's compiler sees to them (pypto.md 1.2): what a lane stored is in
memory before anything that it issues afterwards can be seen, and a wait drops every copy. Faults may
take either away from a notify or a wait (faults/caches.py), which is what a program without them is.

Not modelled: a publish of one region only, an invalidate that loses what was not written back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from harness.fabric.caches import Cache
from harness.fabric.flight import InFlight, digest
from harness.fabric.lanes import POLL_OPERATIONS
from harness.fabric.memory import Handle, Shape, Window
from harness.fabric.one_sided import tensor_of
from harness.fabric.simulated_rank import SimulatedRank
from harness.plan import Visibility
from harness.rank import AtomicType, Group, NotifyOp, Source, WaitCmp
from harness.record import VALUE_BYTES_MAX

# What faults may take away, by operation.
_TAKEN: dict[str, dict[str, bool]] = {
    "notify": {"publish": True}, "put_signal": {"publish": True}, "wait": {"invalidate": True},
}
T = TypeVar("T")


class CachedRank(SimulatedRank):
    """One rank's operations, as one of its lanes performs them through its cache."""

    def __init__(self, switches: Visibility, *given: Any) -> None:
        super().__init__(*given)
        self._delayed = switches.lines or switches.delayed
        self._cache = Cache(lines=switches.lines, stale=switches.stale)

    def _offer(self, kind: str, body: Callable[..., T], **args: Any) -> T:
        return super()._offer(kind, body, **args, **_TAKEN.get(kind, {}))

    def _publish(self) -> None:
        """Go on when all that this lane stored is in memory."""
        cache, lane = self._cache, self._lane
        if not cache.unpublished:
            return
        flying = [op for op in cache.unpublished if not op.done]
        lane.pending = ("publish",)
        if flying:
            self._sim.block(lane, ("publish", flying, self._code, self._lasti))
        self._sim.point(lane)
        lane.blocked_on = None
        cache.unpublished.clear()
        self._plain("publish")

    # Memory -------------------------------------------------------------------------------------

    def _load(self, src: Handle, at: int, shape: Shape) -> torch.Tensor:
        cache = self._cache
        if self._lane.reads >= POLL_OPERATIONS:  # a poll: lines do not stay in a cache for ever
            cache.invalidate()
        tensor = super()._load(src, at, shape)
        if type(src) is not Window:
            return tensor
        index = len(self._events) - 1
        event = self._events[index]
        region = src.mine
        start, stop = region.base + event[4], region.base + event[5]
        seen, fetched = cache.read(region, start, stop, index)
        if seen == region.view[start:stop]:
            return tensor
        if fetched >= 0:
            self._sim.fetched[index] = fetched
        value = seen if len(seen) <= VALUE_BYTES_MAX else digest(seen)
        self._events[index] = (*event[:6], value, *event[7:])
        return tensor_of(memoryview(seen), src.dtype, tensor.numel(), tuple(tensor.shape))

    def _store(self, dst: Handle, value: torch.Tensor | float, at: int) -> None:
        if type(dst) is not Window or not self._delayed:
            super()._store(dst, value, at)
            if type(dst) is Window:
                lo, hi = self._events[-1][4:6]
                region = dst.mine
                stored = bytes(region.view[region.base + lo : region.base + hi])
                self._cache.wrote(region, region.base + lo, stored)
            return
        self._handle_check("store", dst)
        at = self._offset("store", at, dst)
        data = self._tensor_bytes("store", value, dst)
        if self._sim.uses and isinstance(value, torch.Tensor):
            self._sim.reading(self._lane, value, "store", self._code, self._lasti)
        if at < 0 or at * dst.itemsize + len(data) > dst.nbytes:
            self._bounds("store", dst, at, len(data) // dst.itemsize)
        self._store_later(dst, at, data, moved=isinstance(value, torch.Tensor))

    def _store_later(self, dst: Window, at: int, data: bytes, *, moved: bool) -> None:
        """Issue a store: this lane sees it now, memory at an event of its own. moved: by bytes, as tiles
        are; a number is written by the core, with its line."""
        lane, sim, cache, region = self._lane, self._sim, self._cache, dst.mine
        start = dst.start + at * dst.itemsize
        lo, hi = start - region.base, start - region.base + len(data)
        lane.pending = ("store_issue", dst.number, self.index, lo, hi)
        sim.point(lane)
        number = sim.issued
        whole = cache.lines and not moved
        meets = cache.meets(region, start, start + len(data), whole=whole)
        mark = number if meets else lane.fence_mark
        op = InFlight(
            number, "line", lane, self.index, dst.number, region, start, len(data), data, mark,
            self._code, self._lasti,
        )
        op.value = digest(data)
        cache.line(op, data, dst.itemsize, whole=whole)
        cache.unpublished.append(op)
        cache.wrote(region, start, data)
        self._event_of(op, "store_issue", lo, hi)
        sim.issue(op, ordered=True)

    def _event_of(self, op: InFlight, kind: str, lo: int, hi: int) -> None:
        self._events.append(
            (self._owner, kind, op.window, op.peer, lo, hi, op.value, op.number, op.code, op.lasti)
        )

    def _end_life(self, window: Window) -> None:
        self._publish()
        super()._end_life(window)

    # One-sided operations -----------------------------------------------------------------------

    def _put(
        self, dst: Window, peer: int, src: Source, at: int, atomic: AtomicType | None,
        operation: str = "put", *, late_source: bool = False,
    ) -> InFlight:
        if type(src) is Window:  # read at memory
            self._publish()
        return super()._put(dst, peer, src, at, atomic, operation, late_source=late_source)

    def _read(self, operation: str, dst: Handle, peer: int, src: Window, at: int) -> InFlight:
        self._publish_to_itself(peer)
        return super()._read(operation, dst, peer, src, at)

    def _get(self, dst: Handle, peer: int, src: Window, at: int) -> None:
        super()._get(dst, peer, src, at)
        self._cache.invalidate()

    def _remote_load(self, win: Window, peer: int, at: int, shape: Shape) -> torch.Tensor:
        self._publish_to_itself(peer)
        return super()._remote_load(win, peer, at, shape)

    def _publish_to_itself(self, peer: int) -> None:
        if peer == self.index:
            self._publish()

    def _put_signal(
        self, dst: Window, peer: int, src: Source, at: int, cell: Window, cell_at: int,
        amount: int, op: NotifyOp, *, publish: bool = True,
    ) -> InFlight:
        if publish:
            self._publish()
        with self._in_line(cell, peer, cell_at, op):
            signal = super()._put_signal(dst, peer, src, at, cell, cell_at, amount, op)
        return self._line_of_set(signal)

    def _notify(
        self, cell: Window, peer: int, at: int, value: int, op: NotifyOp, *, publish: bool = True
    ) -> InFlight:
        if publish:
            self._publish()
        with self._in_line(cell, peer, at, op):
            signal = super()._notify(cell, peer, at, value, op)
        return self._line_of_set(signal)

    @contextmanager
    def _in_line(self, cell: Window, peer: int, at: int, op: NotifyOp) -> Iterator[None]:
        """What this lane wrote to one line stays in order: a Set issued within comes after the rest.

        Arguments that are wrong order nothing; the operation's own checks refuse them."""
        lane, mark = self._lane, self._lane.fence_mark
        sets = self._cache.lines and op == NotifyOp.Set and type(cell) is Window
        if sets and type(peer) is int and 0 <= peer < self.size and type(at) is int:
            region, start = cell.regions[peer], cell.start + 4 * at
            if region is not None and self._cache.meets(region, start, start + 4, whole=True):
                lane.fence_mark = self._sim.issued
        try:
            yield
        finally:
            lane.fence_mark = mark

    def _line_of_set(self, signal: InFlight) -> InFlight:
        """A Set is a store into the peer's memory: with `lines` it writes a line back."""
        cache = self._cache
        if cache.lines and signal.kind == "set":
            signal.value = signal.data
            number = signal.data & 0xFFFFFFFF
            cache.line(signal, number.to_bytes(4, "little"), 4, whole=True)
        return signal

    # Synchronisation ----------------------------------------------------------------------------

    def _wait(
        self, cell: Window, at: int, value: int, cmp: WaitCmp, timeout: float | None,
        *, invalidate: bool = True,
    ) -> bool:
        self._publish()
        came = super()._wait(cell, at, value, cmp, timeout)
        if came and invalidate:
            self._cache.invalidate()
        return came

    def _fence(self) -> None:
        self._publish()
        super()._fence()

    def _quiet(self) -> None:
        super()._quiet()
        self._cache.unpublished.clear()
        self._cache.invalidate()

    def _window(
        self, name: str, shape: Shape, dtype: torch.dtype, init: str | None, group: Group | None,
        byte_offset: int = 0,
    ) -> Window:
        self._publish()
        window = super()._window(name, shape, dtype, init, group, byte_offset)
        self._cache.invalidate()
        return window

    def _sync(self, group: Group | None, name: str = "sync") -> None:
        self._publish()
        super()._sync(group, name)
        self._cache.invalidate()

    def join(self, dispatch: int) -> None:
        """The end of a dispatch: what a lane stored is there for the rank's other lanes."""
        self._publish()
        super().join(dispatch)
        self._cache.invalidate()
