"""Which operations the faults speak of, and how they read arguments that are not yet checked."""

from __future__ import annotations

import operator
from typing import Any

import torch

from harness import Buffer, Operation, Window

# Operations that change a cell, and the argument that names the cell's element.
CELL_AT = {"notify": "at", "put_signal": "cell_at"}
# Operations with a peer.
PEERED = frozenset(
    (
        "put", "put_nbi", "get", "get_nbi", "remote_load", "remote_store", "put_signal", "notify",
    )
)
# Operations whose `at` is an offset into data.
OFFSET = frozenset(
    (
        "load", "store", "put", "put_nbi", "get", "get_nbi", "remote_load", "remote_store",
        "put_signal",
    )
)
# The argument whose extent says how many elements an operation moves.
EXTENT = {
    "load": "shape", "remote_load": "shape", "store": "value", "remote_store": "value",
    "put": "src", "put_nbi": "src", "put_signal": "src", "get": "dst", "get_nbi": "dst",
}
# The argument that may be a plain tensor with the elements to write.
TENSOR = {"store": "value", "remote_store": "value", "put": "src", "put_signal": "src"}
# What the host does, or the fabric for it: no rank calls these.
HOST = frozenset(("alloc", "prepare", "dispatch", "bind"))


def whole(value: Any) -> int | None:
    """`value` as an int where it is one (numpy and torch integers too), else None."""
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def extents(shape: Any) -> tuple[int, ...] | None:
    """A shape argument as a tuple, None where it is no shape."""
    single = whole(shape)
    if single is not None:
        return (single,)
    try:
        dims = [whole(extent) for extent in shape]
    except TypeError:
        return None
    return None if None in dims else tuple(dim for dim in dims if dim is not None)


def one_shorter(value: Any) -> Any:
    """The same shape, tensor or handle without its last element; None where there is none.

    A shape loses one along its last dimension.
    """
    if isinstance(value, Window | Buffer):
        aligned = value.offset % value.itemsize == 0
        return value.view(value.numel - 1, value.dtype) if value.numel and aligned else None
    if isinstance(value, torch.Tensor):
        dense = value.is_contiguous() and value.numel() > 0
        return value.reshape(-1)[:-1] if dense else None
    dims = extents(value)
    if not dims or dims[-1] < 1:
        return None
    return (*dims[:-1], dims[-1] - 1)


def strided(value: Any) -> torch.Tensor | None:
    """The same elements with a gap after each; None where that is no tensor or changes nothing."""
    if not isinstance(value, torch.Tensor) or value.numel() < 2 or not value.is_contiguous():
        return None
    return torch.stack((value, value), dim=-1)[..., 0]


def cell_of(op: Operation) -> tuple[int, int] | None:
    """(element, number of elements) of the cell that `op` changes, None where it changes none."""
    if op.kind not in CELL_AT:
        return None
    at = whole(op.args[CELL_AT[op.kind]])
    cell = op.args["cell"]
    return (at, cell.numel) if at is not None and isinstance(cell, Window) else None
