"""What a rank program may call.

A rank program is an ordinary blocking function `program(rank, *tensors, *scalars)`. Every operation
is a scheduling point. Offsets (`at`) and counts are elements, shapes are ints or sequences of ints,
`peer` is a rank index in [0, size). Errors name rank, operation, given and allowed; they are
`OperationError`s. The orders between operations are the table in fabric/memory.py.

`Rank` holds the interface, finds the user's line and lets faults rewrite the call (interpose.py);
fabrics implement the underscored twin of each operation.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from sys import _getframe
from types import CodeType
from typing import Any, Literal, TypeVar

import torch

from harness.errors import RankDied
from harness.fabric.memory import Buffer, Handle, Shape, Window
from harness.interpose import DeadRank, Interposer, Operation


class NotifyOp(enum.IntEnum):
    """How a notify changes its cell. Numbers as in PyPTO's ABI."""

    AtomicAdd = 0
    Set = 1


class WaitCmp(enum.IntEnum):
    """What a wait compares with. Numbers as in PyPTO's ABI."""

    Eq = 0
    Ge = 1


class AtomicType(enum.IntEnum):
    """What a put does to the elements it meets: overwrite them, or add to them (one event)."""

    NoAtomic = 0
    Add = 1


Source = torch.Tensor | Handle
Group = Sequence[int]  # ranks, in any order; groups may overlap
T = TypeVar("T")


class Rank(ABC):
    """One worker's view of the world.

    index: the rank's number. size: world size. lane: the number of this worker of the rank.
    lanes: how many workers of the rank run this program.
    """

    def __init__(self, index: int, size: int, interposer: Interposer | None) -> None:
        self.index = index
        self.size = size
        self.lane = 0
        self.lanes = 1
        self._faults = interposer
        self._code: CodeType | None = None
        self._lasti = -1

    def __repr__(self) -> str:
        lane = f" lane {self.lane} of {self.lanes}," if self.lanes > 1 else ""
        return f"rank {self.index}{lane} of {self.size}"

    def _offer(self, kind: str, body: Callable[..., T], **args: Any) -> T:
        code, lasti = self._code, self._lasti

        def perform(**changed: Any) -> Any:
            self._code, self._lasti = code, lasti
            return body(**changed)

        assert self._faults is not None
        try:
            operation = Operation(kind, self.index, self.size, args, self.lane)
            result: T = self._faults.perform(operation, perform)
        except RankDied:
            self._died()
            raise
        return result

    def _died(self) -> None:
        """A fault killed this rank: what its program still calls while it unwinds does nothing."""
        self._faults = DeadRank()

    # Memory ---------------------------------------------------------------------------------

    def window(
        self, name: str, shape: Shape, dtype: torch.dtype, *,
        init: Literal["poison", "zero"] | None = None, group: Group | None = None,
    ) -> Window:
        """Allocate a symmetric window; collective: returns when every rank has called it.

        init: what the memory holds at first; by default zeros for int32 (cells start at zero) and
        poison for every other dtype. The k-th call with a name on one rank meets the k-th with that
        name on the others; shapes and dtypes must agree (the matching checker says where not).
        group: the ranks that allocate it, by default all; its cells are then the group's own, and
        no other rank can reach them. Peers are always numbered in the world.
        """
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            return self._offer(
                "window", self._window, name=name, shape=shape, dtype=dtype, init=init, group=group
            )
        return self._window(name, shape, dtype, init, group)

    def buffer(self, shape: Shape, dtype: torch.dtype) -> Buffer:
        """Private, tracked memory of this rank, filled with poison. No scheduling point."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            return self._offer("buffer", self._buffer, shape=shape, dtype=dtype)
        return self._buffer(shape, dtype)

    def load(self, src: Handle, at: int, shape: Shape) -> torch.Tensor:
        """A copy of `shape` elements of one's own part of `src` from element `at` on."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            return self._offer("load", self._load, src=src, at=at, shape=shape)
        return self._load(src, at, shape)

    def store(self, dst: Handle, value: torch.Tensor | float, at: int = 0) -> None:
        """Write `value` (a dense tensor of dst's dtype, or one number) to one's own part of `dst`."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("store", self._store, dst=dst, value=value, at=at)
        else:
            self._store(dst, value, at)

    # One-sided operations ---------------------------------------------------------------------

    def put(
        self, dst: Window, peer: int, src: Source, at: int = 0, *,
        atomic: AtomicType | None = None,
    ) -> None:
        """Write all of `src` into `peer`'s part of `dst` from element `at` on.

        Returns when `src` may be reused; the bytes arrive later (rows A to C, F).
        """
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("put", self._put, dst=dst, peer=peer, src=src, at=at, atomic=atomic)
        else:
            self._put(dst, peer, src, at, atomic)

    def put_nbi(
        self, dst: Window, peer: int, src: Source, at: int = 0, *,
        atomic: AtomicType | None = None,
    ) -> None:
        """As put, but `src` stays in use until quiet (row G): it is read at delivery.

        A plain tensor (dense, on the CPU) is compared with itself at delivery, quiet and the end of
        the run: see fabric/tensors.py for what that sees and what it cannot see.
        """
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("put_nbi", self._put_nbi, dst=dst, peer=peer, src=src, at=at, atomic=atomic)
        else:
            self._put_nbi(dst, peer, src, at, atomic)

    def get(self, dst: Handle, peer: int, src: Window, at: int = 0) -> None:
        """Fill all of `dst` with `peer`'s elements of `src` from `at` on; returns when landed."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("get", self._get, dst=dst, peer=peer, src=src, at=at)
        else:
            self._get(dst, peer, src, at)

    def get_nbi(self, dst: Source, peer: int, src: Window, at: int = 0) -> None:
        """As get, but returns at once; `dst` holds the elements only after quiet.

        A plain tensor (dense, on the CPU) is looked after as that of put_nbi.
        """
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("get_nbi", self._get_nbi, dst=dst, peer=peer, src=src, at=at)
        else:
            self._get_nbi(dst, peer, src, at)

    def remote_load(self, win: Window, peer: int, at: int, shape: Shape) -> torch.Tensor:
        """A copy of `shape` elements of `peer`'s part of `win` from element `at` on (row K)."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            return self._offer(
                "remote_load", self._remote_load, win=win, peer=peer, at=at, shape=shape
            )
        return self._remote_load(win, peer, at, shape)

    def remote_store(
        self, win: Window, peer: int, value: torch.Tensor, at: int = 0, *,
        atomic: AtomicType | None = None,
    ) -> None:
        """Write `value` into `peer`'s part of `win`; delivered like a put."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer(
                "remote_store", self._remote_store, win=win, peer=peer, value=value, at=at,
                atomic=atomic,
            )
        else:
            self._remote_store(win, peer, value, at, atomic)

    def put_signal(
        self, dst: Window, peer: int, src: Source, at: int, cell: Window, cell_at: int,
        amount: int, *, op: NotifyOp = NotifyOp.AtomicAdd,
    ) -> None:
        """A put whose signal on `peer`'s `cell[cell_at]` is delivered after its data (row D)."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer(
                "put_signal", self._put_signal, dst=dst, peer=peer, src=src, at=at, cell=cell,
                cell_at=cell_at, amount=amount, op=op,
            )
        else:
            self._put_signal(dst, peer, src, at, cell, cell_at, amount, op)

    # Synchronisation ----------------------------------------------------------------------------

    def notify(
        self, cell: Window, peer: int, at: int, value: int, *, op: NotifyOp = NotifyOp.AtomicAdd
    ) -> None:
        """Add `value` to (or set) the int32 cell `at` of `peer`'s part of `cell`; one-sided."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("notify", self._notify, cell=cell, peer=peer, at=at, value=value, op=op)
        else:
            self._notify(cell, peer, at, value, op)

    def wait(
        self, cell: Window, at: int, value: int, *, cmp: WaitCmp = WaitCmp.Ge,
        timeout: float | None = None,
    ) -> bool:
        """Block until one's own cell `at` is >= (or ==) `value`; consumes nothing.

        timeout: seconds from the call (virtual ones in simulation); None waits for ever. Whether the
        value came.
        """
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            return self._offer(
                "wait", self._wait, cell=cell, at=at, value=value, cmp=cmp, timeout=timeout
            ) is not False  # a fault may have dropped it
        return self._wait(cell, at, value, cmp, timeout)

    def fence(self) -> None:
        """Order this lane's puts and notifies per target: before, then after. Completes nothing."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("fence", self._fence)
        else:
            self._fence()

    def quiet(self) -> None:
        """Block until every one-sided operation of this lane is delivered, gets included."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("quiet", self._quiet)
        else:
            self._quiet()

    def sync(self, group: Group | None = None) -> None:
        """Block until every rank (of the group) has arrived. Completes no one-sided operation.

        The k-th sync of a rank for a group meets the k-th of the others, whichever of its lanes makes
        it; it lets that lane go on and orders nothing of the rank's other lanes.
        """
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("sync", self._sync, group=group)
        else:
            self._sync(group)

    def barrier(self, group: Group | None = None) -> None:
        """quiet, then sync."""
        frame = _getframe(1)
        self._code = frame.f_code
        self._lasti = frame.f_lasti
        if self._faults:
            self._offer("barrier", self._barrier, group=group)
        else:
            self._barrier(group)

    # What a fabric implements ---------------------------------------------------------------------

    @abstractmethod
    def _window(
        self, name: str, shape: Shape, dtype: torch.dtype, init: str | None, group: Group | None,
        byte_offset: int = 0,
    ) -> Window: ...

    @abstractmethod
    def _buffer(self, shape: Shape, dtype: torch.dtype) -> Buffer: ...

    @abstractmethod
    def _load(self, src: Handle, at: int, shape: Shape) -> torch.Tensor: ...

    @abstractmethod
    def _store(self, dst: Handle, value: torch.Tensor | float, at: int) -> None: ...

    @abstractmethod
    def _put(
        self, dst: Window, peer: int, src: Source, at: int, atomic: AtomicType | None
    ) -> Any: ...

    @abstractmethod
    def _put_nbi(
        self, dst: Window, peer: int, src: Source, at: int, atomic: AtomicType | None
    ) -> None: ...

    @abstractmethod
    def _get(self, dst: Handle, peer: int, src: Window, at: int) -> None: ...

    @abstractmethod
    def _get_nbi(self, dst: Source, peer: int, src: Window, at: int) -> None: ...

    @abstractmethod
    def _remote_load(self, win: Window, peer: int, at: int, shape: Shape) -> torch.Tensor: ...

    @abstractmethod
    def _remote_store(
        self, win: Window, peer: int, value: torch.Tensor, at: int, atomic: AtomicType | None
    ) -> None: ...

    @abstractmethod
    def _put_signal(
        self, dst: Window, peer: int, src: Source, at: int, cell: Window, cell_at: int,
        amount: int, op: NotifyOp,
    ) -> Any: ...

    @abstractmethod
    def _notify(self, cell: Window, peer: int, at: int, value: int, op: NotifyOp) -> Any: ...

    @abstractmethod
    def _wait(
        self, cell: Window, at: int, value: int, cmp: WaitCmp, timeout: float | None
    ) -> bool: ...

    @abstractmethod
    def _fence(self) -> None: ...

    @abstractmethod
    def _quiet(self) -> None: ...

    @abstractmethod
    def _sync(self, group: Group | None) -> None: ...

    @abstractmethod
    def _barrier(self, group: Group | None) -> None: ...
