"""The right operation on the wrong memory: peer, offset, extent, base, strides, window size.

Where the wrong place exists the operation touches it silently, as on a device; where it does not,
the entry checks raise their typed error. Not modelled: wrong dtypes, which those checks always see.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec

from faults.operations import (
    EXTENT,
    OFFSET,
    PEERED,
    TENSOR,
    extents,
    one_shorter,
    strided,
    whole,
)
from harness import Fault, Operation

# A shifted handle reaches at most this far behind its window: the width of a guard.
SHIFT_BYTES_MAX = 64


class WrongPeer(Fault, frozen=True, tag="wrong_peer"):
    """A one-sided operation goes to the rank after the right one (after the last comes rank 0)."""

    def matches(self, op: Operation) -> bool:
        """Operations with a peer, in a world of two or more."""
        return op.kind in PEERED and op.size > 1 and whole(op.args["peer"]) in range(op.size)

    def rewrite(self, op: Operation) -> Operation:
        """The next peer."""
        peer = whole(op.args["peer"])
        assert peer is not None
        return op.with_args(peer=(peer + 1) % op.size)


class OffsetOffByOne(Fault, frozen=True, tag="offset_off_by_one"):
    """A load, store, put or get begins one element after the right one (delta -1: before it)."""

    delta: Literal[-1, 1] = 1

    def matches(self, op: Operation) -> bool:
        """Operations with an offset into data."""
        return op.kind in OFFSET and whole(op.args["at"]) is not None

    def rewrite(self, op: Operation) -> Operation:
        """The neighbouring offset."""
        at = whole(op.args["at"])
        assert at is not None
        return op.with_args(at=at + self.delta)


class WrongShape(Fault, frozen=True, tag="wrong_shape"):
    """A load, store, put or get is one element short (a load: along its last dimension)."""

    def matches(self, op: Operation) -> bool:
        """Operations that move at least one element, from a dense tensor if from one."""
        return op.kind in EXTENT and one_shorter(op.args[EXTENT[op.kind]]) is not None

    def rewrite(self, op: Operation) -> Operation:
        """The shorter extent."""
        argument = EXTENT[op.kind]
        return op.with_args(**{argument: one_shorter(op.args[argument])})


class MisalignedBase(Fault, frozen=True, tag="misaligned_base"):
    """A rank's handle of a window begins `nbytes` bytes after the window does.

    A whole number of elements shifts everything silently; any other number tears elements, and a
    notify or wait on it is Misaligned.
    """

    nbytes: Annotated[int, msgspec.Meta(ge=1, le=SHIFT_BYTES_MAX)] = 4

    def matches(self, op: Operation) -> bool:
        """Windows that the rank allocates, or gets from the host."""
        return op.kind in ("window", "bind")

    def rewrite(self, op: Operation) -> Operation:
        """The shifted base."""
        return op.with_args(byte_offset=op.args.get("byte_offset", 0) + self.nbytes)


class NonContiguousSource(Fault, frozen=True, tag="non_contiguous_source"):
    """The tensor to be written is strided: the same elements with a gap after each."""

    def matches(self, op: Operation) -> bool:
        """Operations that write a dense tensor of two or more elements."""
        return op.kind in TENSOR and strided(op.args[TENSOR[op.kind]]) is not None

    def rewrite(self, op: Operation) -> Operation:
        """The strided source."""
        argument = TENSOR[op.kind]
        return op.with_args(**{argument: strided(op.args[argument])})


class WindowCountsRanks(Fault, frozen=True, tag="window_counts_ranks"):
    """A window's size is given as the number of ranks instead of bytes or a shape."""

    def _argument(self, op: Operation) -> Any:
        return {"alloc": "size", "window": "shape"}.get(op.kind)

    def matches(self, op: Operation) -> bool:
        """Allocations, by host or rank, of another size."""
        argument = self._argument(op)
        if argument is None:
            return False
        dims = extents(op.args[argument])
        return dims is not None and math.prod(dims) != op.size

    def rewrite(self, op: Operation) -> Operation:
        """A size of one a rank."""
        return op.with_args(**{self._argument(op): op.size})
