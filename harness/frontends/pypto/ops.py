"""`pl`'s operations on memory: load, store, read, write, slice, assemble, create, reshape.

A tensor in a kernel is a `View`; what a core computes with is a `Tile`. An operation of a tile that is given
a view loads it first, as the compiler does in a core group. `pl.slice` there loads at once too: what it
holds is what memory held at that line, while `x[a:b]` is a view that is read where it is used.

A tile may be larger than the data in it (`valid_shape`): the rest holds poison, operations work on the
valid part, and a store writes only that.

Not modelled: on-chip memories, their sizes and layouts; which moves between them are legal.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import torch

from harness.errors import OutOfBounds, PldRuleError, WrongArgument, WrongDtype, WrongShape
from harness.fabric.memory import POISON, filled
from harness.frontends.pypto import operate
from harness.frontends.pypto.dtypes import INDEX, INT32, TASK_ID, DataType
from harness.frontends.pypto.enums import AtomicType, Level, MemorySpace
from harness.frontends.pypto.operate import current, on_host, recording
from harness.frontends.pypto.scalars import DeviceInt, exact, scalar
from harness.frontends.pypto.values import HostTensor, Tile, View, WindowView, dims_of, row_major


class PadValue(enum.Enum):
    """What `fillpad` puts where a tile holds no data."""

    null = 0
    zero = 1
    max = 2
    min = 3


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
        raise PldRuleError("device_only", f"{given!r} is used by an operation of devices in host code")
    raise WrongArgument(f"{given!r} where a tensor or a tile is due")


def view_of(given: Any, what: str) -> View:
    """The memory that an operation is given. Raises WrongArgument for a tile, PldRuleError on the host."""
    if isinstance(given, Later):
        given = given.get()
    if isinstance(given, View):
        return given
    if isinstance(given, HostTensor | WindowView):
        raise PldRuleError("device_only", f"pl.{what} of {given!r} in host code")
    raise WrongArgument(f"pl.{what} of {given!r}: a tensor is due")


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
    _checked_valid(valid, physical)
    data = operate.load(view.region(offsets, valid))
    return padded(data, physical, view.dtype)


def padded(data: torch.Tensor, physical: tuple[int, ...], dtype: DataType) -> Tile:
    """A tile of extents `physical` whose first elements on each axis are `data`."""
    valid = tuple(data.shape)
    if valid == physical:
        return Tile(data, None, dtype)
    whole = poisoned(physical, dtype)
    whole[tuple(slice(0, extent) for extent in valid)] = data
    return Tile(whole, valid, dtype)


def _checked_valid(valid: tuple[int, ...], physical: tuple[int, ...]) -> None:
    if len(valid) != len(physical) or any(v < 0 or v > p for v, p in zip(valid, physical, strict=True)):
        raise PldRuleError(
            "valid_shape", f"valid_shape {list(valid)} is not within the tile's shape {list(physical)}"
        )


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
    _checked_valid(valid, physical)
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


# Making and reshaping -----------------------------------------------------------------------------


def create_tensor(
    shape: Any, dtype: DataType, layout: Any = None, manual_dep: bool = False,  # noqa: FBT001, FBT002
    init_value: float | None = None,
) -> Any:
    """New memory: of the host in host code, else of the device that runs; poison but for `init_value`."""
    dims = dims_of(shape)
    if on_host():
        made = recording().create(dims, dtype)
        if init_value is not None:
            made.data.fill_(init_value)
        return made
    view = operate.buffer(dims, dtype)
    if init_value is not None:
        operate.store(view, torch.full(dims, init_value, dtype=dtype.torch))
    return view


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
    _checked_valid(valid, tile.shape)
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


# Arrays -------------------------------------------------------------------------------------------


class Array:
    """`pl.array`: a core's own scalars, or the numbers of tasks. Not written: poison."""

    def __init__(self, held: list[Any], dtype: DataType) -> None:
        self.held = held
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"array of {len(self.held)} {self.dtype.name}"

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: Any) -> Any:
        return self.held[self._index(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.held[self._index(index)] = value if self.dtype is TASK_ID else scalar(value, self.dtype)

    def _index(self, index: Any) -> int:
        at = exact(index[0] if isinstance(index, list | tuple) else index)
        if not 0 <= at < len(self.held):
            raise OutOfBounds(f"element {at} of an {self!r}")
        return at

    def copy(self) -> Array:
        """Another one with the same elements."""
        return Array(list(self.held), self.dtype)


def array_create(extent: Any, dtype: DataType) -> Array:
    """An array of `extent` scalars that holds nothing yet."""
    value = None if dtype is TASK_ID else scalar(poisoned((1,), dtype).item(), dtype)
    return Array([value] * exact(extent), dtype)


def array_update(array: Array, index: Any, value: Any) -> Array:
    """A copy with one element changed."""
    changed = array.copy()
    changed[index] = value
    return changed
