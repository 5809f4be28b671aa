"""What the annotations of `pld` functions say: shapes, element types, directions, dynamic extents.

    x: pl.Tensor[[NR, 1, SIZE], pl.FP32]          y: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]]
    w: pld.DistributedTensor[[NR, 1], pl.INT32]   rank: pl.Scalar[pl.INT32]

Python evaluates them when the function is defined. An extent is an int, a symbol (`pl.dynamic("NR")`) or
arithmetic on one, which is evaluated when it is needed: symbols are bound from the shapes of a call's
arguments for as long as the call lasts (`bound`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from operator import add, floordiv, mod, mul, sub
from typing import Any

from harness.errors import PldRuleError
from harness.frontends.pypto.dtypes import DataType

_SYMBOLS: ContextVar[dict[str, int]] = ContextVar("rankfault_pld_symbols")
_NAMES = {add: "+", sub: "-", mul: "*", floordiv: "//", mod: "%"}


class Extent:
    """A number that is known at a call only; arithmetic on it stays one."""

    def value(self) -> int:
        """Its value in the call that is running. Raises PldRuleError where there is none."""
        raise NotImplementedError

    def __index__(self) -> int:
        return self.value()

    __int__ = __index__

    def __bool__(self) -> bool:
        return self.value() != 0

    def __add__(self, other: Any) -> Any:
        return Expression(add, self, other)

    def __radd__(self, other: Any) -> Any:
        return Expression(add, other, self)

    def __sub__(self, other: Any) -> Any:
        return Expression(sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return Expression(sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return Expression(mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return Expression(mul, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return Expression(floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return Expression(floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return Expression(mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return Expression(mod, other, self)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int | Extent) and self.value() == int(other))

    def __lt__(self, other: Any) -> bool:
        return self.value() < int(other)

    def __le__(self, other: Any) -> bool:
        return self.value() <= int(other)

    def __gt__(self, other: Any) -> bool:
        return self.value() > int(other)

    def __ge__(self, other: Any) -> bool:
        return self.value() >= int(other)

    def __hash__(self) -> int:
        return id(self)


class Symbol(Extent):
    """`pl.dynamic(name)`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def value(self) -> int:
        """What the arguments of the running call make it."""
        found = _SYMBOLS.get({}).get(self.name)
        if found is None:
            raise PldRuleError(
                "unbound_dynamic",
                f"the dynamic extent {self.name!r} has no value here: no argument of a running call "
                "has it in its shape",
            )
        return found


class Expression(Extent):
    """Arithmetic on symbols."""

    def __init__(self, operator: Any, left: Any, right: Any) -> None:
        self.operator, self.left, self.right = operator, left, right

    def __repr__(self) -> str:
        return f"({self.left!r} {_NAMES[self.operator]} {self.right!r})"

    def value(self) -> int:
        """Its value in the running call."""
        return int(self.operator(int(self.left), int(self.right)))

    def solved(self, total: int) -> tuple[str, int] | None:
        """Which symbol it binds, and to what, if its value is `total`; None if it tells nothing."""
        left, right = self.left, self.right
        if isinstance(left, Extent) and isinstance(right, Extent):
            return None
        unknown, known = (left, right) if isinstance(left, Extent) else (right, left)
        if self.operator is mul and known and total % known == 0:
            total //= known
        elif self.operator is add:
            total -= known
        elif self.operator is sub:
            total = total + known if unknown is left else known - total
        else:
            return None
        if isinstance(unknown, Symbol):
            return unknown.name, total
        return unknown.solved(total) if isinstance(unknown, Expression) else None


@contextlib.contextmanager
def bound(symbols: dict[str, int]) -> Iterator[None]:
    """`symbols` have these values, beside those that are bound already."""
    if not symbols:
        yield
        return
    token = _SYMBOLS.set({**_SYMBOLS.get({}), **symbols})
    try:
        yield
    finally:
        _SYMBOLS.reset(token)


def symbols_now() -> dict[str, int]:
    """What symbols are bound to."""
    return _SYMBOLS.get({})


@dataclass(frozen=True, slots=True)
class Annotation:
    """A parameter's type.

    kind: "tensor", "window" (a DistributedTensor), "tile", "scalar" or "array". shape: None where it was
    left out. direction: "in", "out" or "inout".
    """

    kind: str
    shape: tuple[Any, ...] | None = None
    dtype: DataType | None = None
    direction: str = "in"

    def __repr__(self) -> str:
        shape = "" if self.shape is None else f" {list(self.shape)}"
        return f"{self.kind}{shape} {self.dtype.name if self.dtype else ''}".rstrip()


class _Subscripted(type):
    """`Class[...]` gives an Annotation; `Class` alone stands for one without shape."""

    kind: str

    def __getitem__(cls, given: Any) -> Annotation:
        parts = given if isinstance(given, tuple) else (given,)
        if cls.kind == "scalar":
            return Annotation("scalar", (), _dtype(parts[0], cls.kind))
        if not isinstance(parts[0], Sequence):
            raise TypeError(f"pl.{cls.__name__}[shape, dtype]: {parts[0]!r} is no shape")
        dtype = _dtype(parts[1], cls.kind) if len(parts) > 1 else None
        return Annotation(cls.kind, tuple(parts[0]), dtype)


def _dtype(given: Any, kind: str) -> DataType:
    if not isinstance(given, DataType):
        raise TypeError(f"{given!r} is no element type of a {kind}; such as pl.FP32")
    return given


class Tensor(metaclass=_Subscripted):
    """`pl.Tensor`: memory of one device, or of the host."""

    kind = "tensor"


class DistributedTensor(metaclass=_Subscripted):
    """`pld.DistributedTensor`: a view of a window."""

    kind = "window"


class Tile(metaclass=_Subscripted):
    """`pl.Tile`: a core's own value."""

    kind = "tile"


class Array(metaclass=_Subscripted):
    """`pl.Array`: a core's own scalars."""

    kind = "array"


class Scalar(metaclass=_Subscripted):
    """`pl.Scalar`."""

    kind = "scalar"


def annotation_of(given: Any) -> Annotation | None:
    """What an annotation says; None for one that is not ours."""
    if isinstance(given, Annotation):
        return given
    return Annotation(given.kind) if isinstance(given, _Subscripted) else None


class _Direction:
    def __init__(self, direction: str) -> None:
        self._direction = direction

    def __getitem__(self, given: Any) -> Annotation:
        inner = annotation_of(given)
        if inner is None:
            raise TypeError(f"pl.Out and pl.InOut take a pl type, not {given!r}")
        return Annotation(inner.kind, inner.shape, inner.dtype, self._direction)


Out = _Direction("out")
InOut = _Direction("inout")


def dynamic(name: str) -> Symbol:
    """`pl.dynamic`: an extent that each call brings."""
    return Symbol(name)
