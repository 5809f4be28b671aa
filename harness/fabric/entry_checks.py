"""Entry checks of rank operations: what no fabric could perform is refused with a typed error.

Every text names the rank, the operation, what was given and what is allowed. The operations test the
common case inline and come here for the error, because a check costs as much as an event.
"""

from __future__ import annotations

from ctypes import string_at
from enum import IntEnum
from operator import index
from typing import Any, NoReturn

import torch

from harness.errors import (
    Misaligned,
    NonContiguous,
    OutOfBounds,
    UseAfterFree,
    WrongArgument,
    WrongDtype,
    WrongGroup,
    WrongHandle,
    WrongPeer,
)
from harness.fabric.memory import ITEMSIZE, Handle, Window
from harness.rank import Group, Rank


class EntryChecks(Rank):
    """The checks of one rank."""

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
        if win.regions[peer] is None:
            self._not_of_group(operation, win, peer)
        if win.mine.freed:
            raise UseAfterFree(f"rank {self.index}: {operation} on {win!r} after it was freed")

    def _not_of_group(self, operation: str, win: Handle, peer: int) -> NoReturn:
        members = [rank for rank, region in enumerate(win.regions) if region is not None]
        raise WrongPeer(
            f"rank {self.index}: {operation} to peer {peer} in {win!r}; its group has the ranks "
            f"{', '.join(map(str, members))} (peers are numbered in the world)"
        )

    def _offset(self, operation: str, at: Any, handle: Any = None) -> int:
        """`at` as an int. Raises WrongArgument."""
        try:
            return index(at)
        except TypeError:
            hint = ""
            shape = getattr(handle, "shape", ())
            if isinstance(at, tuple | list) and len(at) == len(shape) and all(
                isinstance(one, int) for one in at
            ):
                flat = 0
                for one, extent in zip(at, shape, strict=True):
                    flat = flat * extent + one
                hint = f"; in shape {list(shape)} that is {flat}"
            raise WrongArgument(
                f"rank {self.index}: {operation} at {_short(at)}; an offset is one int that counts "
                f"elements{hint}"
            ) from None

    def _peer(self, operation: str, peer: Any) -> int:
        """`peer` as an int. Raises WrongPeer."""
        try:
            return index(peer)
        except TypeError:
            raise WrongPeer(
                f"rank {self.index}: {operation} to peer {_short(peer)}; peers are "
                f"0..{self.size - 1}"
            ) from None

    def _mode(self, operation: str, name: str, given: Any, modes: type[IntEnum]) -> Any:
        """One of `modes`. Raises WrongArgument."""
        try:
            return modes(given)
        except ValueError:
            allowed = " or ".join(f"{modes.__name__}.{mode.name}" for mode in modes)
            raise WrongArgument(
                f"rank {self.index}: {operation} with {name}={_short(given)}; choose {allowed}"
            ) from None

    def _members(self, operation: str, group: Group | None) -> tuple[int, ...]:
        """The ranks of a group in order; () for the whole world. Raises WrongGroup."""
        if group is None:
            return ()
        try:
            members = tuple(map(index, group))
        except TypeError:
            raise WrongGroup(
                f"rank {self.index}: {operation} with group {_short(group)}; a group is a sequence "
                "of ranks"
            ) from None
        outside = [rank for rank in members if not 0 <= rank < self.size]
        twice = [rank for rank in members if members.count(rank) > 1]
        if outside or twice or not members:
            what = f"{outside[0]} is outside 0..{self.size - 1}" if outside else (
                f"{twice[0]} occurs twice" if twice else "it is empty"
            )
            raise WrongGroup(
                f"rank {self.index}: {operation} with group {list(members)}: {what}"
            )
        if self.index not in members:
            raise WrongGroup(
                f"rank {self.index}: {operation} with group {list(members)}, which this rank is "
                "not a member of"
            )
        return () if len(members) == self.size else tuple(sorted(members))

    def _bounds(self, operation: str, handle: Handle, at: int, count: int) -> None:
        plural = "" if count == 1 else "s"
        raise OutOfBounds(
            f"rank {self.index}: {operation} of {count} element{plural} at {at} in {handle!r}, "
            f"which has {handle.numel}"
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
                f"{cell.start & 3} byte{'s' if cell.start & 3 > 1 else ''}"
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
        if value.is_neg() or value.is_conj():
            value = value.detach().resolve_neg().resolve_conj()
        return string_at(value.data_ptr(), value.numel() * dst.itemsize)


def _short(value: object) -> str:
    text = repr(value).split("\n")[0]
    return text if len(text) <= 60 else text[:57] + "..."
