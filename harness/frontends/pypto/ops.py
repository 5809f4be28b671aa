"""`pl`'s operations on memory: load, store, read, write, slice, assemble, create_tensor.

`pl.slice` in a core group loads at once: what it holds is what memory held at that line, while `x[a:b]`
is a view that is read where it is used.

A tile may be larger than the data in it (`valid_shape`): the rest holds poison, operations work on the
valid part, and a store writes only that.

Not modelled: on-chip memories, their sizes and layouts; which moves between them are legal.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.errors import OutOfBounds, PldRuleError, WrongDtype, WrongShape
from harness.frontends.pypto import operate
from harness.frontends.pypto.dtypes import DataType
from harness.frontends.pypto.enums import AtomicType, Level, MemorySpace
from harness.frontends.pypto.operands import (
    Accumulator,
    Later,
    Slice,
    checked_valid,
    padded,
    tile_of,
    view_of,
)
from harness.frontends.pypto.operate import current, on_host, recording
from harness.frontends.pypto.ops_arrays import Array
from harness.frontends.pypto.ops_tiles import fillpad
from harness.frontends.pypto.scalars import exact, scalar
from harness.frontends.pypto.values import HostTensor, Tile, View, dims_of, row_major

# Moving data --------------------------------------------------------------------------------------


def load(
    tensor: Any, offsets: Any, shapes: Any, valid_shape: Any = None,
    target_memory: MemorySpace = MemorySpace.Vec, clamp: bool = False,  # noqa: FBT001, FBT002
) -> Tile:
    """A tile of extents `shapes` from `offsets` on; with `valid_shape` only so much of it is real.

    clamp: what would lie outside the tensor is not valid. Raises OutOfBounds, PldRuleError.
    """
    view = view_of(tensor, "load")
    physical = dims_of(shapes)
    valid = physical if valid_shape is None else dims_of(valid_shape)
    if clamp:
        starts = dims_of(offsets)
        valid = tuple(
            max(0, min(extent, whole - start))
            for extent, whole, start in zip(valid, view.shape, starts, strict=False)
        )
    checked_valid(valid, physical)
    data = operate.load(view.region(offsets, valid))
    return padded(data, physical, view.dtype)


def store(
    tile: Any, offsets: Any, output_tensor: Any, shapes: Any = None, *,
    atomic: Any = AtomicType.None_,
) -> Any:
    """Write the valid part of a tile to a tensor from `offsets` on; returns the tensor.

    shapes: the extents to write, by default the tile's. Raises OutOfBounds, WrongDtype, PldRuleError.
    """
    view = view_of(output_tensor, "store")
    held = tile_of(tile)
    data = held.real
    extents = fitted(tuple(data.shape), len(view.shape)) if shapes is None else dims_of(shapes)
    _write(view.region(offsets, extents), data, held, "store", atomic)
    return output_tensor


def fitted(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """A shape with `rank` axes: leading axes of one are added or left out. Raises WrongShape."""
    if len(shape) <= rank:
        return (1,) * (rank - len(shape)) + shape
    extra = len(shape) - rank
    if any(extent != 1 for extent in shape[:extra]):
        raise WrongShape(f"a tile of shape {list(shape)} does not fit a tensor of {rank} axes")
    return shape[extra:]


def _write(box: View, data: torch.Tensor, held: Tile, what: str, atomic: Any) -> None:
    if data.dtype is not box.dtype.torch:
        if not (isinstance(held, Accumulator) and box.dtype.floating):
            raise WrongDtype(f"pl.{what} of {held!r} into {box!r}: cast it first")
        data = data.to(box.dtype.torch)
    if data.numel() != box.numel:
        raise WrongShape(f"pl.{what} of {held!r} into {box!r}: as many elements are due")
    if atomic == AtomicType.Add:
        data = operate.load(box) + data.reshape(box.shape)
    operate.store(box, data)


def read(src: Any, offset: Any) -> Any:
    """The scalar at `offset`: an index an axis, or one number that counts elements."""
    if isinstance(src, Array):
        return src[offset]
    if isinstance(src, Later):
        src = src.get()
    if isinstance(src, Tile):
        return scalar(src.data[_place(offset, src.shape)].item(), src.dtype)
    view = view_of(src, "read")
    settle = getattr(current().place, "settle", None)
    if settle is not None:
        settle(view)
    return operate.read(view.cell(_place(offset, view.shape)))


def write(dst: Any, offset: Any, value: Any) -> Any:
    """Write a scalar at `offset`; returns the tensor or tile."""
    if isinstance(dst, Array):
        dst[offset] = value
    elif isinstance(dst, Tile):
        dst.data[_place(offset, dst.shape)] = value
    else:
        view = view_of(dst, "write")
        operate.write(view.cell(_place(offset, view.shape)), value)
    return dst


def _place(offset: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Indices on each axis. Raises PldRuleError (rule `offset_rank`), OutOfBounds."""
    if not isinstance(offset, list | tuple):
        at = exact(offset)
        if not 0 <= at < max(1, math.prod(shape)):
            raise OutOfBounds(f"element {at} of {list(shape)}")
        return tuple(at // stride % n for n, stride in zip(shape, row_major(shape), strict=True))
    starts = dims_of(offset)
    if len(starts) != len(shape):
        raise PldRuleError("offset_rank", f"index {list(starts)} of a shape with {len(shape)} axes")
    if any(not 0 <= start < extent for start, extent in zip(starts, shape, strict=True)):
        raise OutOfBounds(f"index {list(starts)} of shape {list(shape)}")
    return starts


def slice_(
    input: Any, shape: Any, offset: Any, valid_shape: Any = None, drop_dims: Any = None,
    pad_value: Any = None, clamp: bool = False,  # noqa: FBT001, FBT002
) -> Any:
    """The box of extents `shape` at `offset`: of a tensor a view, of a tile a tile.

    drop_dims: axes of one that the result does not have. Raises OutOfBounds, PldRuleError.
    """
    if isinstance(input, Later):
        input = input.get()
    physical = dims_of(shape)
    starts = dims_of(offset)
    if isinstance(input, HostTensor):
        box: Any = input.region(starts, physical)
        return box.reshaped(_dropped(physical, drop_dims))
    if isinstance(input, Tile):
        return _slice_of_tile(input, physical, starts, valid_shape, drop_dims)
    view = view_of(input, "slice")
    valid = physical if valid_shape is None else dims_of(valid_shape)
    if clamp:
        valid = tuple(max(0, min(n, w - s)) for n, w, s in zip(valid, view.shape, starts, strict=False))
    checked_valid(valid, physical)
    found = view.region(starts, valid)
    if current().level is not Level.CORE_GROUP:
        return found.reshaped(_dropped(valid, drop_dims))
    taken = padded(operate.load(found), physical, view.dtype)
    if pad_value is not None:
        taken = fillpad(taken, pad_value)
    if drop_dims:
        return Slice(
            found.reshaped(_dropped(valid, drop_dims)),
            Tile(taken.data.reshape(_dropped(physical, drop_dims)), None, view.dtype),
        )
    return Slice(found, taken)


def _dropped(shape: tuple[int, ...], drop_dims: Any) -> tuple[int, ...]:
    gone = set(dims_of(drop_dims)) if drop_dims else set()
    return tuple(extent for axis, extent in enumerate(shape) if axis not in gone)


def _slice_of_tile(
    tile: Tile, physical: tuple[int, ...], starts: tuple[int, ...], valid_shape: Any, drop_dims: Any
) -> Tile:
    if len(starts) != len(tile.shape) or len(physical) != len(tile.shape):
        raise PldRuleError("offset_rank", f"pl.slice of {tile!r}: offset {list(starts)}")
    if any(s < 0 or s + n > whole for s, n, whole in zip(starts, physical, tile.shape, strict=True)):
        raise OutOfBounds(f"pl.slice of {tile!r}: {list(physical)} at {list(starts)} leaves it")
    part = tile.data[tuple(slice(s, s + n) for s, n in zip(starts, physical, strict=True))]
    valid = None if valid_shape is None else dims_of(valid_shape)
    if valid is None and tile.valid is not None:
        valid = tuple(
            max(0, min(n, v - s)) for n, v, s in zip(physical, tile.valid, starts, strict=True)
        )
    if drop_dims:
        return Tile(part.reshape(_dropped(physical, drop_dims)), None, tile.dtype)
    return Tile(part, valid, tile.dtype)


def assemble(target: Any, source: Any, offset: Any, *, atomic: Any = AtomicType.None_) -> Any:
    """`source` written into `target` at `offset`; a tensor is changed and returned, a tile copied."""
    if isinstance(target, Tile):
        part = tile_of(source).real
        starts = dims_of(offset)
        shape = fitted(tuple(part.shape), len(starts))
        data = target.data.clone()
        data[tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True))] = part.reshape(shape)
        return Tile(data, target.valid, target.dtype)
    view = view_of(target, "assemble")
    held = tile_of(source)
    shape = fitted(tuple(held.real.shape), len(view.shape))
    _write(view.region(offset, shape), held.real, held, "assemble", atomic)
    return target


def create_tensor(
    shape: Any, dtype: DataType, layout: Any = None, manual_dep: bool = False,  # noqa: FBT001, FBT002
    init_value: float | None = None,
) -> Any:
    """New memory: of the host in host code, else of the device that runs; poison but for `init_value`.

    manual_dep: tasks have no edges for it, neither its writers nor its readers.
    """
    dims = dims_of(shape)
    if on_host():
        made = recording().create(dims, dtype)
        if init_value is not None:
            made.data.fill_(init_value)
        return made
    view = operate.buffer(dims, dtype)
    place = operate.current().place
    if manual_dep and place is not None:
        place.cores.written.leave_out(view)
    if init_value is not None:
        operate.store(view, torch.full(dims, init_value, dtype=dtype.torch))
    return view
