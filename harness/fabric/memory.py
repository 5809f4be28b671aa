"""Memory of the simulated fabric: regions, the handles a program holds, and the delivery rules.

A `Region` is the memory of one rank for one window or buffer: payload between two guards, filled with
poison (or zeros). A handle (`Window`, `Buffer`) names a region by rank, an element type and a shape;
it is opaque: `load` copies out, and using it as a tensor is an error that names `load`.

Which orders hold (rank r, target t; fabric/simulated.py builds them, tests/harness/fabric/
test_delivery.py has one test for each row):

    A put, remote_store or notify of r to t                        is delivered by an event of its own,
                                                                   at any time after its issue
    B ... issued after a fence of r                                 after all of r to t issued before it
    C two of r to t without a fence between, or to different t      in any order
    D the signal of put_signal                                      after its own data, and not after
                                                                   other puts without a fence
    E get, get_nbi                                                  read and land are two events; a
                                                                   fence does not order them
    F put, remote_store                                             source copied at issue
    G put_nbi                                                       source read at delivery
    H quiet                                                         returns when nothing of r is in flight
    I barrier = quiet + sync; sync                                  arrival only, completes nothing
    J wait                                                          looks at delivered values only
    K load, store, remote_load                                      act at once, at their own event
    L eager                                                         as above with every hold ignored
    M torn at 4, 8 or 64 bytes                                      puts and the reads of gets take
                                                                    effect piece by piece, each an
                                                                    event; others may come between
    N delayed: a store to a window                                  this lane sees it at once; memory has
                                                                    it by an event of its own (a put to
                                                                    oneself), in any order with others
    O ... two of a lane to the same bytes (row Q: lines)            in order
    P publish, before notify, put_signal, wait, fence, sync,        memory has every store of this lane
      window, a put from a window, remote_load or get of oneself    (quiet waits for them anyway)
    Q lines: a store of a number to a window (late, as in N), and   write the whole of their 64-byte line
      a notify or signal by Set                                     as this lane saw it at the issue: what
                                                                    came there since is lost; a store of
                                                                    a tensor (late too), AtomicAdd, put
                                                                    and remote_store write their bytes
    R stale: a load of a window                                     sees the copy of its line that this
                                                                    lane's load before fetched, with its
                                                                    own stores; remote_load, get, put,
                                                                    wait look at memory
    S invalidate, after wait, quiet, sync, window, get              drops this lane's copies

The sources are the OpenSHMEM 1.5 specification (fence, quiet, put-with-signal) and the NVSHMEM
documentation; for row M: a put has no atomicity wider than an element of its network; for rows N to S,
which are off by default (fabric/caches.py): AICore's caches, which are not coherent with memory and write
64-byte lines, and where PyPTO's compiler publishes and invalidates. Not modelled here: third parties that
see a delivery later than its target.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from operator import index
from sys import _getframe
from types import CodeType
from typing import Any, NoReturn

import torch

from harness.errors import (
    Misaligned,
    OutOfBounds,
    WrongArgument,
    WrongDtype,
    WrongHandle,
    WrongShape,
)

GUARD_BYTES = 64
SMALL_BYTES_MAX = 1 << 20
# As float32, float16, bfloat16 or float64 the poison holds a NaN; as int32 it is 2146754221.
POISON = b"\xad\xde\xf4\x7f"
GUARD = b"\xee\xff\xc0\x7f"


class _ItemSizes(dict[torch.dtype, int]):
    def __missing__(self, dtype: object) -> NoReturn:
        known = ", ".join(str(known)[6:] for known in self)
        raise WrongDtype(f"given dtype {dtype}; windows and buffers hold {known}")


ITEMSIZE: dict[torch.dtype, int] = _ItemSizes(
    (dtype, torch.empty((), dtype=dtype).element_size())
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16,
        torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool,
    )
)

DTYPE_NAME = {dtype: str(dtype)[6:] for dtype in ITEMSIZE}

Shape = int | Sequence[int]


def filled(pattern: bytes, nbytes: int) -> bytes:
    """`nbytes` bytes that repeat `pattern`."""
    return (pattern * (nbytes // len(pattern) + 1))[:nbytes]


_GUARD_BLOCK = filled(GUARD, GUARD_BYTES)


def _made(nbytes: int, *, zero: bool) -> bytes:
    """New memory: guard, payload, guard, and padding to whole int64s."""
    body = bytes(nbytes) if zero else filled(POISON, nbytes)
    return b"".join((_GUARD_BLOCK, body, _GUARD_BLOCK, bytes(-nbytes % 8)))


_small = functools.lru_cache(maxsize=64)(_made)
_large = functools.lru_cache(maxsize=2)(_made)  # 64 of these could fill the machine


def _fresh(nbytes: int, *, zero: bool) -> bytes:
    """The same, remembered."""
    return (_small if nbytes <= SMALL_BYTES_MAX else _large)(nbytes, zero=zero)


class Region:
    """The bytes of one rank for one window, buffer or host tensor.

    view: all bytes, guards included; the payload begins at `base`. cells: the same memory as int32
    (None where the payload is not a multiple of four bytes). waiters: lanes blocked on it.
    """

    __slots__ = ("base", "cells", "data", "freed", "nbytes", "view", "waiters")

    def __init__(self, nbytes: int, *, zero: bool) -> None:
        self.data: Any = bytearray(_fresh(nbytes, zero=zero))
        self.view = memoryview(self.data)
        self.base = GUARD_BYTES
        self.nbytes = nbytes
        self.waiters: list[Any] = []
        self.freed = False

    def __getattr__(self, name: str) -> Any:
        """`cells`, made when it is first asked for: most memory holds none."""
        if name != "cells":
            raise AttributeError(name)
        self.cells: Any = self.view.cast("i")
        return self.cells

    @classmethod
    def over(cls, tensor: torch.Tensor) -> Region:
        """The region that a dense CPU tensor's memory is; it has no guards."""
        region = cls.__new__(cls)
        flat = tensor.detach().reshape(-1)
        region.data = flat  # keeps the storage alive
        held: Any = flat.view(torch.uint8).numpy() if flat.numel() else bytearray()
        region.view = memoryview(held)
        region.nbytes = flat.numel() * flat.element_size()
        region.cells = region.view.cast("B").cast("i") if region.nbytes % 4 == 0 else None
        region.base = 0
        region.waiters = []
        region.freed = False
        return region

    @classmethod
    def within(
        cls, view: memoryview, nbytes: int, *, zero: bool | None, guards: bool = True
    ) -> Region:
        """A region in memory that somebody else owns. zero: fill it; None: it stays as it is."""
        region = cls.__new__(cls)
        region.data = region.view = view
        region.base = GUARD_BYTES if guards else 0
        region.nbytes = nbytes
        region.waiters = []
        region.freed = False
        if not guards:  # of any size
            region.cells = view.cast("i") if nbytes % 4 == 0 else None
        if zero is not None:
            made = _fresh(nbytes, zero=zero)
            view[: len(made)] = made
        return region

    def copied(self) -> Region:
        """The same in memory of its own."""
        copy = Region.__new__(Region)
        copy.data = bytearray(self.view)
        copy.view = memoryview(copy.data)
        copy.base, copy.nbytes, copy.freed = self.base, self.nbytes, self.freed
        copy.waiters = []
        if not self.base:
            copy.cells = copy.view.cast("i") if self.nbytes % 4 == 0 else None
        return copy

    def payload(self) -> bytes:
        """A copy of the payload."""
        return bytes(self.view[self.base : self.base + self.nbytes])

    def intact(self) -> bool:
        """Whether both guards hold what they held."""
        return not self.base or (
            self.data.startswith(_GUARD_BLOCK)
            and self.data.startswith(_GUARD_BLOCK, self.base + self.nbytes)
        )

    def broken_guard(self) -> int | None:
        """Offset, relative to the payload, of the first guard byte that was overwritten."""
        if self.intact():
            return None
        end = self.base + self.nbytes
        for start, stop in ((0, self.base), (end, end + GUARD_BYTES)):
            block = bytes(self.view[start:stop])
            if block != _GUARD_BLOCK:
                first = next(i for i, byte in enumerate(block) if byte != _GUARD_BLOCK[i])
                return start + first - self.base
        return None


def normal_shape(shape: Shape, operation: str, rank: int = -1) -> tuple[int, ...]:
    """`shape` as a tuple of non-negative ints. Raises WrongShape naming rank (-1: host), operation."""
    who = "host" if rank < 0 else f"rank {rank}"
    try:
        dims = (shape,) if isinstance(shape, int) else tuple(map(index, shape))
    except TypeError:
        try:
            dims = (index(shape),)  # type: ignore[arg-type]  # numpy's ints are no int
        except TypeError:
            raise WrongShape(
                f"{who}: {operation} of shape {shape!r}; a shape is an int or a sequence of ints"
            ) from None
    if dims and min(dims) < 0:
        raise WrongShape(f"{who}: {operation} of shape {list(dims)}; extents are 0 or more")
    return dims


def _not_a_tensor(self: Handle, *_: Any, **__: Any) -> NoReturn:
    raise WrongHandle(
        f"{self!r} is a handle, not a tensor: copy its elements out with "
        f"rank.load({self.name}, at, shape) and compute on the copy"
    )


class Handle:
    """What windows and buffers have in common: a name, an element type, a shape, a rank's memory.

    shape: elements by dimension. dtype: a torch dtype. nbytes: payload bytes that the handle spans.
    """

    __slots__ = (
        "dtype", "itemsize", "mine", "name", "nbytes", "number", "numel", "offset", "rank",
        "regions", "shape", "start",
    )
    word = "handle"

    def __init__(
        self, number: int, name: str, regions: Sequence[Region], rank: int,
        shape: tuple[int, ...], dtype: torch.dtype, offset: int = 0,
    ) -> None:
        self.number = number
        self.name = name
        self.regions = regions
        self.rank = rank
        self.mine = regions[rank]
        self.shape = shape
        self.dtype = dtype
        self.itemsize = ITEMSIZE[dtype]
        self.numel = math.prod(shape)
        self.nbytes = self.numel * self.itemsize
        self.offset = offset
        self.start = self.mine.base + offset

    def __repr__(self) -> str:
        return f"{self.word} {self.name!r} {list(self.shape)} {str(self.dtype)[6:]}"

    def view(self, shape: Shape, dtype: torch.dtype, byte_offset: int = 0) -> Any:
        """The same memory from `byte_offset` on, as `shape` elements of `dtype`.

        Raises Misaligned when the offset is no multiple of the element size, OutOfBounds when the
        view ends behind the memory.
        """
        dims = normal_shape(shape, f"view of {self!r}", self.rank)
        try:
            offset = self.offset + index(byte_offset)
        except TypeError:
            raise WrongArgument(
                f"rank {self.rank}: view of {self!r} at byte offset {byte_offset!r}; an int is due"
            ) from None
        size = ITEMSIZE[dtype]
        if offset % size:
            raise Misaligned(
                f"rank {self.rank}: view of {self!r} at byte offset {offset}: {str(dtype)[6:]} "
                f"needs a multiple of {size}; the nearest is {offset - offset % size}"
            )
        nbytes = math.prod(dims) * size
        if offset < 0 or offset + nbytes > self.mine.nbytes:
            raise OutOfBounds(
                f"rank {self.rank}: view {list(dims)} {str(dtype)[6:]} at byte offset {offset} "
                f"needs bytes {offset}..{offset + nbytes} of {self!r}, which has "
                f"{self.mine.nbytes}"
            )
        return self._other(dims, dtype, offset)

    def _other(self, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> Any:
        """Another handle of the same memory."""
        return type(self)(self.number, self.name, self.regions, self.rank, shape, dtype, offset)

    def shifted(self, nbytes: int) -> Any:
        """The same handle with its base moved by `nbytes`, unchecked: what a wrong base address is.
        For faults; a program cannot call it by accident because `view` checks."""
        return self._other(self.shape, self.dtype, self.offset + nbytes)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> NoReturn:
        handle = next((arg for arg in args if isinstance(arg, Handle)), None)
        if handle is None:
            raise WrongHandle("a window or buffer was used as a tensor: copy out with rank.load")
        _not_a_tensor(handle)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = (
        _not_a_tensor
    )
    __getitem__ = __setitem__ = __len__ = __iter__ = __float__ = __int__ = __array__ = _not_a_tensor

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name not in Handle.__slots__ and hasattr(torch.Tensor, name):
            _not_a_tensor(self)
        raise AttributeError(f"a {self.word} has no attribute {name!r}")


class Window(Handle):
    """Symmetric memory: one region a rank, reachable by all ranks of the group.

    `free()` ends its life on this rank; later accesses by anybody are lifetime findings.
    """

    __slots__ = ("on_free",)
    word = "window"
    on_free: Callable[[Window, CodeType, int], None]

    def _other(self, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> Any:
        window = super()._other(shape, dtype, offset)
        window.on_free = self.on_free
        return window

    def free(self) -> None:
        """End this window's life on this rank. A scheduling point."""
        frame = _getframe(1)
        self.on_free(self, frame.f_code, frame.f_lasti)


class Buffer(Handle):
    """Memory of one rank, private but tracked (also how a host tensor appears to a rank)."""

    __slots__ = ()
    word = "buffer"
