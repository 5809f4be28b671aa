"""What the names of a `pld` program stand for: memory, a core's own values, the host's tensors.

`View`     memory as a kernel sees it: a region of a window or of a buffer of its rank
`Tile`     a core's own value, a torch tensor; what of it is valid
`HostTensor`, `WindowBuffer`, `WindowView`   the same from the host: slices of its tensors, allocations

Slicing makes other views of the same memory; reading and writing it are operations (operate.py). Extents
and offsets count elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from harness.errors import OutOfBounds, PldRuleError, WrongShape
from harness.frontends.pypto.dtypes import DataType, dtype_of
from harness.frontends.pypto.scalars import exact

if TYPE_CHECKING:
    from harness.fabric.memory import Handle
    from harness.host import HostWindow


def dims_of(shape: Any) -> tuple[int, ...]:
    """A shape's extents as plain ints, symbols evaluated."""
    if isinstance(shape, list | tuple):
        return tuple([one if type(one) is int else exact(one) for one in shape])
    return (exact(shape),)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of dense memory."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def indexed(
    index: Any, shape: Sequence[int], what: object
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]:
    """Start and extent on each axis of what `x[index]` names, and which axes stay.

    Raises OutOfBounds, or PldRuleError for an index that names no box.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) > len(shape):
        raise PldRuleError("index_rank", f"{what!r} has {len(shape)} axes; {len(parts)} are indexed")
    starts, extents, kept = [], [], []
    for axis, extent in enumerate(shape):
        part = parts[axis] if axis < len(parts) else slice(None)
        if isinstance(part, slice):
            if part.step not in (None, 1):
                raise PldRuleError("slice_step", f"a slice of {what!r} with step {part.step}")
            start = 0 if part.start is None else exact(part.start)
            stop = extent if part.stop is None else exact(part.stop)
            length = stop - start
        else:
            start, length = exact(part), 1
        if start < 0 or length < 0 or start + length > extent:
            raise OutOfBounds(
                f"{what!r}: elements {start}..{start + length} of axis {axis}, which has {extent}"
            )
        starts.append(start)
        extents.append(length)
        kept.append(isinstance(part, slice))
    return tuple(starts), tuple(extents), tuple(kept)


class View:
    """Memory of one rank as a kernel sees it.

    handle: the window or buffer, flat, of `dtype`. offset, strides: in elements of it. buffer: the host's
    allocation that it is a view of; None for memory that no peer can reach.
    """

    __slots__ = ("buffer", "dtype", "handle", "name", "offset", "shape", "strides")

    def __init__(
        self, handle: Handle, shape: tuple[int, ...], dtype: DataType, *, offset: int = 0,
        strides: tuple[int, ...] | None = None, buffer: WindowBuffer | None = None, name: str = "",
    ) -> None:
        self.handle = handle
        self.shape = shape
        self.dtype = dtype
        self.offset = offset
        self.strides = row_major(shape) if strides is None else strides
        self.buffer = buffer
        self.name = name or handle.name

    def __repr__(self) -> str:
        word = "window" if self.buffer is not None else "tensor"
        return f"{word} {self.name!r} {list(self.shape)} {self.dtype.name}"

    @property
    def is_window(self) -> bool:
        """Whether peers can reach it."""
        return self.buffer is not None

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def dense(self) -> bool:
        """Whether its elements follow each other in memory."""
        return self.strides == row_major(self.shape) or self.numel <= 1

    def _other(self, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> View:
        return View(
            self.handle, shape, self.dtype, offset=offset, strides=strides, buffer=self.buffer,
            name=self.name,
        )

    def region(self, offsets: Any, shape: Any) -> View:
        """The box of extents `shape` that begins at `offsets`; one of each an axis.

        Raises PldRuleError (rule `offset_rank`) and OutOfBounds.
        """
        starts, extents = dims_of(offsets), dims_of(shape)
        rank = len(self.shape)
        if len(starts) != rank or len(extents) != rank:
            raise PldRuleError(
                "offset_rank", f"{self!r} has {rank} axes; offsets {list(starts)} and shape "
                f"{list(extents)} must have as many"
            )
        at = self.offset
        for axis in range(rank):
            start, length = starts[axis], extents[axis]
            if start < 0 or length < 0 or start + length > self.shape[axis]:
                raise OutOfBounds(
                    f"{self!r}: offsets {list(starts)} and shape {list(extents)} leave it on axis "
                    f"{axis}, which has {self.shape[axis]}"
                )
            at += start * self.strides[axis]
        return self._other(extents, at, self.strides)

    def cell(self, offsets: Any) -> View:
        """The one element at `offsets`. Raises as `region`."""
        starts = dims_of(offsets)
        return self.region(starts, (1,) * len(starts))

    def box(self, index: Any) -> View:
        """What `x[index]` names; axes indexed by a number are gone."""
        starts, extents, kept = indexed(index, self.shape, self)
        at = self.offset + sum(s * stride for s, stride in zip(starts, self.strides, strict=True))
        axes = [axis for axis, stays in enumerate(kept) if stays]
        return self._other(
            tuple(extents[axis] for axis in axes), at, tuple(self.strides[axis] for axis in axes)
        )

    def __getitem__(self, index: Any) -> Any:
        found = self.box(index)
        if found.shape or not self.shape:
            return found
        from harness.frontends.pypto.operate import read  # which needs this module

        return read(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        from harness.frontends.pypto.operate import assign

        assign(self.box(index), value)

    def reshaped(self, shape: tuple[int, ...]) -> View:
        """The same dense memory in another shape. Raises WrongShape."""
        if shape == self.shape:
            return self
        if math.prod(shape) != self.numel:
            raise WrongShape(
                f"{self!r} has {self.numel} elements, shape {list(shape)} {math.prod(shape)}"
            )
        if self.dense:
            return self._other(shape, self.offset, row_major(shape))
        if [n for n in shape if n != 1] == [n for n in self.shape if n != 1]:  # axes of one more or less
            strides = iter([s for s, n in zip(self.strides, self.shape, strict=True) if n != 1])
            return self._other(shape, self.offset, tuple(next(strides) if n != 1 else 0 for n in shape))
        raise WrongShape(f"{self!r} is no dense memory: it cannot be seen as {list(shape)}")

    def runs(self) -> list[tuple[int, int]]:
        """(first element in the handle, how many) of each stretch of adjacent elements, in order."""
        count, axis = 1, len(self.shape)
        while axis and (self.strides[axis - 1] == count or self.shape[axis - 1] == 1):
            axis -= 1
            count *= self.shape[axis]
        starts = [self.offset]
        for extent, stride in zip(self.shape[:axis], self.strides[:axis], strict=True):
            starts = [start + i * stride for start in starts for i in range(extent)]
        return [(start, count) for start in starts] if count else []


class Tile:
    """A core's own value. data: its elements. valid: how much of each axis holds real data; None: all."""

    __slots__ = ("data", "dtype", "valid")

    def __init__(
        self, data: torch.Tensor, valid: tuple[int, ...] | None = None, dtype: DataType | None = None
    ) -> None:
        self.data = data
        self.valid = None if valid == tuple(data.shape) else valid
        self.dtype = dtype_of(data.dtype) if dtype is None else dtype

    def __repr__(self) -> str:
        valid = "" if self.valid is None else f", valid {list(self.valid)}"
        return f"tile {list(self.data.shape)} {self.dtype.name}{valid}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its physical extents."""
        return tuple(self.data.shape)

    @property
    def real(self) -> torch.Tensor:
        """The part that holds real data."""
        if self.valid is None:
            return self.data
        return self.data[tuple(slice(0, extent) for extent in self.valid)]


class HostTensor:
    """A tensor in host code. base: the whole argument, dense; data: the part that this is."""

    __slots__ = ("base", "data", "dtype", "name")

    def __init__(self, base: torch.Tensor, name: str, data: torch.Tensor | None = None) -> None:
        self.base = base
        self.data = base if data is None else data
        self.dtype = dtype_of(base.dtype)
        self.name = name

    def __repr__(self) -> str:
        return f"host tensor {self.name!r} {list(self.shape)} {self.dtype.name}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return tuple(self.data.shape)

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return self.data.numel()

    def region(self, offsets: Any, shape: Any) -> HostTensor:
        """The box of extents `shape` that begins at `offsets`. Raises PldRuleError, OutOfBounds."""
        starts, extents = dims_of(offsets), dims_of(shape)
        if len(starts) != len(self.shape) or len(extents) != len(self.shape):
            raise PldRuleError("offset_rank", f"{self!r}: offsets {list(starts)}, shape {list(extents)}")
        return self[tuple(slice(s, s + n) for s, n in zip(starts, extents, strict=True))]

    def __getitem__(self, index: Any) -> HostTensor:
        starts, extents, kept = indexed(index, self.shape, self)
        parts = tuple(
            slice(s, s + n) if stays else s for s, n, stays in zip(starts, extents, kept, strict=True)
        )
        return HostTensor(self.base, self.name, self.data[parts])

    def reshaped(self, shape: tuple[int, ...]) -> HostTensor:
        """The same memory in another shape. Raises WrongShape."""
        if shape == self.shape:
            return self
        try:
            return HostTensor(self.base, self.name, self.data.view(shape))
        except RuntimeError:
            raise WrongShape(f"{self!r} cannot be seen as {list(shape)}") from None

    def _no_value(self) -> Any:
        raise PldRuleError(
            "host_reads_tensor",
            f"host code uses the elements of {self!r}: it runs before any device does",
        )

    def __float__(self) -> float:
        return float(self._no_value())

    def __int__(self) -> int:
        return int(self._no_value())

    def __bool__(self) -> bool:
        return bool(self._no_value())


class WindowBuffer:
    """What `alloc_window_buffer` gives: the same memory on every device of its domain.

    held: the world's window. members: the devices of its domain, once all dispatches are known.
    layout: how collectives have counted in it, as "mesh" or "ring"; empty as long as none has.
    """

    __slots__ = ("held", "layout", "members", "name", "nbytes", "number")

    def __init__(self, number: int, name: str, nbytes: int, held: HostWindow) -> None:
        self.number = number
        self.name = name
        self.nbytes = nbytes
        self.held = held
        self.members: tuple[int, ...] = ()
        self.layout = ""

    def __repr__(self) -> str:
        return f"window buffer {self.name!r} of {self.nbytes} bytes"


class WindowView:
    """What `pld.window` gives in host code: a DistributedTensor."""

    __slots__ = ("buffer", "dtype", "shape")

    def __init__(self, buffer: WindowBuffer, shape: tuple[int, ...], dtype: DataType) -> None:
        self.buffer = buffer
        self.shape = shape
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"window {self.buffer.name!r} {list(self.shape)} {self.dtype.name}"

    @property
    def name(self) -> str:
        """Its buffer's name."""
        return self.buffer.name

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def reshaped(self, shape: tuple[int, ...]) -> WindowView:
        """The same memory in another shape. Raises WrongShape."""
        if math.prod(shape) != self.numel:
            raise WrongShape(
                f"{self!r} has {self.numel} elements, shape {list(shape)} {math.prod(shape)}"
            )
        return WindowView(self.buffer, shape, self.dtype)
