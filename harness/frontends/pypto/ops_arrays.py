"""`pl.array`: a core's own scalars, or the numbers of tasks."""

from __future__ import annotations

from typing import Any

from harness.errors import OutOfBounds
from harness.frontends.pypto.dtypes import TASK_ID, DataType
from harness.frontends.pypto.operands import poisoned
from harness.frontends.pypto.scalars import exact, scalar


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
