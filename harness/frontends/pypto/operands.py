"""What `pl`'s operations are given: a core's own value, memory, or a value that another task binds.

A tensor in a kernel is a `View`; what a core computes with is a `Tile`. An operation of a tile that is
given a view loads it first, as the compiler does in a core group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from harness.errors import PldRuleError
from harness.fabric.memory import POISON, filled
from harness.frontends.pypto import operate
from harness.frontends.pypto.dtypes import DataType
from harness.frontends.pypto.rules import broken
from harness.frontends.pypto.values import HostTensor, Tile, View, WindowView


class Accumulator(Tile):
    """What a matmul leaves: stored as any float, for the way to memory converts it."""

    __slots__ = ()


class Later:
    """A value that a region of another task binds. get: waits for that task (tasks.py)."""

    def get(self) -> Any:
        """The value, once its task has ended."""
        raise NotImplementedError


class Slice(View):
    """`pl.slice` in a core group. taken: what memory held there at that line."""

    __slots__ = ("taken",)

    def __init__(self, view: View, taken: Tile) -> None:
        super().__init__(
            view.handle, view.shape, view.dtype, offset=view.offset, strides=view.strides,
            buffer=view.buffer, name=view.name,
        )
        self.taken = taken


def poisoned(shape: Sequence[int], dtype: DataType) -> torch.Tensor:
    """A tensor that no program has written."""
    nbytes = math.prod(shape) * dtype.get_byte()
    if dtype.torch is torch.bool:
        return torch.zeros(tuple(shape), dtype=torch.bool)
    data = torch.frombuffer(bytearray(filled(POISON, max(nbytes, 1))), dtype=torch.uint8)[:nbytes]
    return data.view(dtype.torch).reshape(tuple(shape))


def tile_of(given: Any) -> Tile:
    """A core's own value of whatever holds elements; a tensor in memory is loaded."""
    if isinstance(given, Tile):
        return given
    if isinstance(given, Slice):
        return given.taken
    if isinstance(given, View):
        return Tile(operate.load(given), None, given.dtype)
    if isinstance(given, Later):
        return tile_of(given.get())
    if isinstance(given, HostTensor | WindowView):
        raise PldRuleError("device_only", f"{given!r} is used by a device's operation in host code")
    raise broken("wrong_operand", f"{given!r} where a tensor or a tile is due")


def view_of(given: Any, what: str) -> View:
    """The memory that an operation is given. Raises PldRuleError (a tile, host code)."""
    if isinstance(given, Later):
        given = given.get()
    if isinstance(given, View):
        return given
    if isinstance(given, HostTensor | WindowView):
        raise PldRuleError("device_only", f"pl.{what} of {given!r} in host code")
    raise broken("wrong_operand", f"pl.{what} of {given!r}: a tensor is due")


def padded(data: torch.Tensor, physical: tuple[int, ...], dtype: DataType) -> Tile:
    """A tile of extents `physical` whose first elements on each axis are `data`."""
    valid = tuple(data.shape)
    if valid == physical:
        return Tile(data, None, dtype)
    whole = poisoned(physical, dtype)
    whole[tuple(slice(0, extent) for extent in valid)] = data
    return Tile(whole, valid, dtype)


def checked_valid(valid: tuple[int, ...], physical: tuple[int, ...]) -> None:
    """Raises PldRuleError (`valid_shape`) where the valid part is none of the tile."""
    if len(valid) != len(physical) or any(v < 0 or v > p for v, p in zip(valid, physical, strict=True)):
        raise PldRuleError(
            "valid_shape", f"valid_shape {list(valid)} is not within the tile's shape {list(physical)}"
        )
