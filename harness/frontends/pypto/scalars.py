"""Scalars as a device computes them: `//` and `%` truncate, results wrap at their type's width.

On the host the same program text computes with Python's ints, which floor: `(my_rank - 1) % nranks` is
nranks - 1 there and -1 on a device (`arith.divsi`, `arith.remsi`). A device's float scalars are Python's
floats, and their width is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from harness.errors import WrongArgument
from harness.frontends.pypto.dtypes import BOOL, INDEX, INT32, DataType


def exact(value: Any) -> int:
    """A plain int of whatever counts as one (a scalar, a symbol, an expression).

    Raises WrongArgument for what does not.
    """
    if type(value) is int:
        return value
    try:
        return int(index(value))
    except TypeError:
        raise WrongArgument(f"{value!r} where a whole number is due") from None


def wrapped(value: int, bits: int) -> int:
    """`value` as a signed integer of `bits` bits holds it."""
    half = 1 << (bits - 1)
    return value if -half <= value < half else (value + half) % (2 * half) - half


def truncated(value: int, by: int) -> int:
    """The quotient, rounded towards zero. Raises ZeroDivisionError."""
    quotient = abs(value) // abs(by)
    return quotient if (value < 0) == (by < 0) else -quotient


def _binary(compute: Callable[[int, int], int], *, swapped: bool = False) -> Callable[..., Any]:
    def operation(self: DeviceInt, other: Any) -> Any:
        kind = type(other)
        if kind is DeviceInt:
            wide = self.dtype if self.dtype.bits >= other.dtype.bits else other.dtype
        elif kind is int or kind is bool:
            wide = self.dtype
        else:
            return NotImplemented
        mine, others = int(self), int(other)
        return DeviceInt(compute(others, mine) if swapped else compute(mine, others), wide)

    return operation


class DeviceInt(int):
    """An integer scalar of a device. dtype: INT32, INT64, INDEX or a narrower one."""

    dtype: DataType

    def __new__(cls, value: int, dtype: DataType = INDEX) -> DeviceInt:
        """`value`, wrapped to `dtype`."""
        made = int.__new__(cls, wrapped(int(value), dtype.bits))
        made.dtype = dtype
        return made

    __add__ = __radd__ = _binary(lambda a, b: a + b)
    __mul__ = __rmul__ = _binary(lambda a, b: a * b)
    __sub__ = _binary(lambda a, b: a - b)
    __rsub__ = _binary(lambda a, b: a - b, swapped=True)
    __floordiv__ = _binary(truncated)
    __rfloordiv__ = _binary(truncated, swapped=True)
    __mod__ = _binary(lambda a, b: a - b * truncated(a, b))
    __rmod__ = _binary(lambda a, b: a - b * truncated(a, b), swapped=True)
    __and__ = __rand__ = _binary(lambda a, b: a & b)
    __or__ = __ror__ = _binary(lambda a, b: a | b)
    __xor__ = __rxor__ = _binary(lambda a, b: a ^ b)
    __lshift__ = _binary(lambda a, b: a << b)
    __rlshift__ = _binary(lambda a, b: a << b, swapped=True)
    __rshift__ = _binary(lambda a, b: a >> b)
    __rrshift__ = _binary(lambda a, b: a >> b, swapped=True)

    def __neg__(self) -> DeviceInt:
        return DeviceInt(-int(self), self.dtype)

    def __pos__(self) -> DeviceInt:
        return self

    def __abs__(self) -> DeviceInt:
        return DeviceInt(abs(int(self)), self.dtype)

    def __invert__(self) -> DeviceInt:
        return DeviceInt(~int(self), self.dtype)

    def __index__(self) -> int:
        return int(self)


def scalar(value: Any, dtype: DataType) -> Any:
    """`value` as a device's scalar of `dtype`: a DeviceInt, a float or a bool."""
    if dtype.floating:
        return float(value)
    if dtype is BOOL:
        return bool(value)
    if isinstance(value, float):
        value = int(value)  # towards zero
    return DeviceInt(exact(value), dtype)


def int32(value: Any) -> DeviceInt:
    """A device's INT32, such as a rank."""
    return DeviceInt(exact(value), INT32)
