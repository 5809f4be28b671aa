"""`pl`'s tiles made, reshaped and padded: create, full, reshape, transpose, fillpad, valid shapes.

Not modelled: layouts, and which of a core's memories a tile lies in.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import torch

from harness.errors import WrongShape
from harness.frontends.pypto.dtypes import INDEX, INT32, DataType
from harness.frontends.pypto.enums import MemorySpace
from harness.frontends.pypto.operands import Later, Slice, checked_valid, poisoned, tile_of
from harness.frontends.pypto.operate import on_host
from harness.frontends.pypto.scalars import DeviceInt, exact
from harness.frontends.pypto.values import Tile, dims_of


class PadValue(enum.Enum):
    """What `fillpad` puts where a tile holds no data."""

    null = 0
    zero = 1
    max = 2
    min = 3


def create_tile(
    shape: Any, dtype: DataType, target_memory: MemorySpace = MemorySpace.Vec, **_layout: Any
) -> Tile:
    """A tile that holds nothing yet."""
    return Tile(poisoned(dims_of(shape), dtype), None, dtype)


def full(shape: Any, dtype: DataType, value: float) -> Tile:
    """A tile of one value."""
    return Tile(torch.full(dims_of(shape), value, dtype=dtype.torch), None, dtype)


def arange(
    start: Any, shape: Any, dtype: DataType = INT32, descending: bool = False  # noqa: FBT001, FBT002
) -> Tile:
    """Consecutive integers from `start` on, row by row."""
    dims = dims_of(shape)
    step = -1 if descending else 1
    data = exact(start) + step * torch.arange(math.prod(dims), dtype=torch.int64)
    return Tile(data.to(dtype.torch).reshape(dims), None, dtype)


def reshape(input: Any, shape: Any) -> Any:
    """The same elements in another shape."""
    dims = dims_of(shape)
    if isinstance(input, Later):
        input = input.get()
    if isinstance(input, Slice):
        input = input.taken
    if not isinstance(input, Tile):
        return input.reshaped(dims)
    if math.prod(dims) != input.data.numel():
        raise WrongShape(f"pl.reshape of {input!r} to {list(dims)}: as many elements are due")
    valid = None
    if input.valid is not None:
        valid = _reshaped_valid(input, dims)
    return Tile(input.data.reshape(dims), valid, input.dtype)


def _reshaped_valid(tile: Tile, dims: tuple[int, ...]) -> tuple[int, ...]:
    """What stays valid when axes of one come or go. Raises WrongShape for anything else."""
    assert tile.valid is not None
    long = [(extent, valid) for extent, valid in zip(tile.shape, tile.valid, strict=True) if extent != 1]
    if [extent for extent, _ in long] != [extent for extent in dims if extent != 1]:
        raise WrongShape(f"pl.reshape of {tile!r}, which is partly valid, to {list(dims)}")
    left = iter(long)
    empty = math.prod(tile.valid) == 0
    return tuple(next(left)[1] if extent != 1 else int(not empty) for extent in dims)


def transpose(input: Any, axis1: int, axis2: int, tmp_tile: Any = None) -> Tile:
    """Two axes changed for each other."""
    tile = tile_of(input)
    valid = None
    if tile.valid is not None:
        held = list(tile.valid)
        held[axis1], held[axis2] = held[axis2], held[axis1]
        valid = tuple(held)
    return Tile(tile.data.transpose(axis1, axis2).contiguous(), valid, tile.dtype)


def concat(src0: Any, src1: Any) -> Tile:
    """Two tiles side by side, on the last axis."""
    left, right = tile_of(src0), tile_of(src1)
    return Tile(torch.cat([left.real, right.real], dim=-1), None, left.dtype)


def dim(tensor: Any, axis: Any) -> Any:
    """A tensor's extent on an axis."""
    extent = tensor.shape[exact(axis)]
    return extent if on_host() else DeviceInt(extent, INDEX)


def move(tile: Any, target_memory: Any = None, **_layout: Any) -> Tile:
    """A tile in another of the core's memories: the same tile."""
    return tile_of(tile)


def set_validshape(input: Any, valid_rows: Any, valid_cols: Any) -> Tile:
    """Say how much of a tile is real."""
    tile = tile_of(input)
    valid = (exact(valid_rows), exact(valid_cols))
    checked_valid(valid, tile.shape)
    return Tile(tile.data, valid, tile.dtype)


def fillpad(value: Any, pad_value: Any = PadValue.zero) -> Tile:
    """A tile that is valid all over: the rest holds `pad_value`."""
    tile = tile_of(value)
    return fillpad_expand(tile, tile.shape, pad_value)


def fillpad_expand(value: Any, shape: Any, pad_value: Any = PadValue.zero) -> Tile:
    """The same in a larger tile."""
    tile = tile_of(value)
    if tile.valid is None and tile.shape == dims_of(shape):
        return tile
    data = torch.full(dims_of(shape), _pad(pad_value, tile.dtype), dtype=tile.dtype.torch)
    data[tuple(slice(0, extent) for extent in tile.real.shape)] = tile.real
    return Tile(data, None, tile.dtype)


def _pad(given: Any, dtype: DataType) -> Any:
    if not isinstance(given, PadValue):
        return given
    if given in (PadValue.zero, PadValue.null):
        return 0
    if dtype.floating:
        return math.inf if given is PadValue.max else -math.inf
    info = torch.iinfo(dtype.torch)
    return info.max if given is PadValue.max else info.min
