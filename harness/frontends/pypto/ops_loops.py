"""`pl`'s loops: range and its kin, values carried from round to round, compile-time checks.

    for i, (acc,) in pl.range(n, init_values=(x,)):
        total = pl.yield_(pl.add(acc, row))

A loop with carried values belongs to the task that runs it: tasks interleave inside loops. Induction
variables are a device's INDEX in kernels and Python's ints in host code. The rounds of `pl.parallel`,
`pl.pipeline` and `pl.unroll` run one after the other.

Not modelled: rounds of `pl.parallel` that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.errors import PldRuleError, WrongArgument
from harness.frontends.pypto.annotations import Extent
from harness.frontends.pypto.dtypes import INDEX
from harness.frontends.pypto.operate import current, on_host
from harness.frontends.pypto.scalars import DeviceInt, exact

_HOST_LOOPS: list[Any] = []  # host code is recorded by one caller at a time
UNSET: Any = object()


class _Carried:
    """A running loop's carried values."""

    __slots__ = ("fresh", "values")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.fresh = False


def _open() -> list[Any]:
    return _HOST_LOOPS if on_host() else current().loops


def _rounds(name: str, args: tuple[Any, ...]) -> range:
    if not 1 <= len(args) <= 3:
        raise WrongArgument(f"pl.{name} with {len(args)} numbers; stop, or start, stop and step are due")
    numbers = [exact(one.value() if isinstance(one, Extent) else one) for one in args]
    if len(numbers) == 3 and numbers[2] == 0:
        raise WrongArgument(f"pl.{name} with step 0")
    return range(*numbers)


def loop(name: str, args: tuple[Any, ...], init_values: Any = None) -> Iterator[Any]:
    """The rounds of `pl.NAME(*args, init_values=)`."""
    rounds = _rounds(name, args)
    if init_values is not None and not isinstance(init_values, tuple | list):
        raise WrongArgument(f"pl.{name} with init_values={init_values!r}; a tuple is due")
    if init_values is None:
        return iter(rounds) if on_host() else _plain(rounds)
    return _carrying(name, rounds, tuple(init_values))


def _plain(rounds: range) -> Iterator[Any]:
    for number in rounds:
        yield DeviceInt(number, INDEX)


def _carrying(name: str, rounds: range, values: tuple[Any, ...]) -> Iterator[Any]:
    loops = _open()
    carried = _Carried(values)
    loops.append(carried)
    try:
        for number in rounds:
            carried.fresh = False
            yield (number if on_host() else DeviceInt(number, INDEX)), carried.values
            _checked(name, carried, len(values))
    finally:
        loops.remove(carried)


def _checked(name: str, carried: _Carried, count: int) -> None:
    if not carried.fresh:
        raise PldRuleError("missing_yield", f"a round of a pl.{name} with init_values has no pl.yield_")
    if len(carried.values) != count:
        raise PldRuleError(
            "missing_yield",
            f"a pl.{name} carries {count} values, its pl.yield_ gives {len(carried.values)}",
        )


def range_(*args: Any, init_values: Any = None) -> Iterator[Any]:
    """`pl.range(stop)`, `(start, stop)` or `(start, stop, step)`."""
    return loop("range", args, init_values)


def parallel(*args: Any, init_values: Any = None) -> Iterator[Any]:
    """Rounds that do not depend on each other."""
    return loop("parallel", args, init_values)


def unroll(*args: Any) -> Iterator[Any]:
    """Rounds that the compiler writes out. Raises PldRuleError where their number is not a literal."""
    if any(isinstance(one, DeviceInt | Extent) for one in args):
        raise PldRuleError("unroll_bound", "pl.unroll takes numbers that are known when it is compiled")
    return loop("unroll", args)


def pipeline(*args: Any, stage: Any = UNSET, init_values: Any = None) -> Iterator[Any]:
    """Rounds whose buffers take turns."""
    if stage is UNSET or exact(stage) < 1:
        raise PldRuleError("pipeline_stage", "pl.pipeline takes stage=, a whole number above 0")
    return loop("pipeline", args, init_values)


def while_(*, init_values: Any = None) -> Iterator[Any]:
    """Rounds for as long as `pl.cond(...)`, their first statement, holds (rewriting.py ends them)."""
    if init_values is None:
        raise PldRuleError("while_values", "pl.while_ takes init_values=")
    return _while(tuple(init_values))


def _while(values: tuple[Any, ...]) -> Iterator[Any]:
    loops = _open()
    carried = _Carried(values)
    loops.append(carried)
    try:
        while True:
            carried.fresh = False
            yield carried.values
            _checked("while_", carried, len(values))
    finally:
        loops.remove(carried)


def cond(condition: Any) -> bool:
    """Whether a `pl.while_` goes on."""
    return bool(condition)


def yield_(*values: Any) -> Any:
    """What the next round, or what follows the loop, goes on with; returns it."""
    loops = _open()
    if not loops:
        raise PldRuleError("yield_outside", "pl.yield_ outside a loop with init_values")
    carried = loops[-1]
    carried.values = values
    carried.fresh = True
    return values[0] if len(values) == 1 else values


def static_print(*args: Any) -> None:
    """Printed by the compiler; here by nobody."""


def static_assert(condition: Any, msg: str = "") -> None:
    """A check of the compiler's. Raises PldRuleError."""
    if not condition:
        raise PldRuleError("static_assert", f"pl.static_assert: {msg or 'its condition does not hold'}")
