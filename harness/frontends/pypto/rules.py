"""The rules of PyPTO's compiler and runtime, each with a name: what breaks one is a finding `pld/<rule>`.

Causes and remedies stand in diagnosis/pld_causes.py; checks stand where their facts are: at the calls of
remote.py and collectives.py, at dispatches (functions.py), in the record (checkers/pld_rules.py).

Not modelled: what only a parser sees, such as Python features that the compiler would refuse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from harness.diagnosis.pld_causes import PLD
from harness.errors import PldRuleError

RULES = tuple(name.removeprefix("pld/") for name in PLD)
MACROS = ("SIMPLER_DFX", "SIMPLER_HOST_STRACE")  # of profiling_config.h


def broken(rule: str, text: str) -> PldRuleError:
    """The error that says so; raise it."""
    assert rule in RULES, rule
    return PldRuleError(rule, text)


def check_window(
    name: str, has: int, shape: Sequence[int], itemsize: int, world: int
) -> None:
    """A view of `shape` elements over a buffer of `has` bytes a rank.

    Raises byte_size when `has` is what a count of ranks or elements would be, else
    window_larger_than_buffer.
    """
    elements = math.prod(shape)
    need = elements * itemsize
    if need <= has:
        return
    text = f"window {list(shape)} of {itemsize}-byte elements needs {need} bytes a rank; "
    if has in (world, elements, *shape):
        raise broken(
            "byte_size", f"{text}{name} was allocated with {has}, which is a count, not bytes"
        )
    raise broken("window_larger_than_buffer", f"{text}{name} has {has}")


def check_extents(
    parameter: str, declared: Sequence[object], given: Sequence[int], world: int
) -> None:
    """A tensor given for a parameter whose constant extents are `declared` (others: symbols).

    Raises world_size_not_dynamic where the extent given is the world size and the declared one is another
    constant, else wrong_shape.
    """
    if len(declared) != len(given):
        raise broken(
            "wrong_shape",
            f"{parameter} is declared with {len(declared)} dimensions, given {list(given)}",
        )
    for dimension, (constant, extent) in enumerate(zip(declared, given, strict=True)):
        if not isinstance(constant, int) or constant == extent:
            continue
        text = f"dimension {dimension} of {parameter} is declared {constant}, given {extent}"
        if dimension == 0 and extent == world:
            raise broken(
                "world_size_not_dynamic", f"{text}, which is the world size: declare it pl.dynamic"
            )
        raise broken("wrong_shape", text)


def check_tensors_first(function: str, kinds: Sequence[tuple[str, bool]]) -> None:
    """Arguments of a dispatch in order, as (name, is a tensor). Raises tensor_after_scalar."""
    scalar = ""
    for name, is_tensor in kinds:
        if is_tensor and scalar:
            raise broken(
                "tensor_after_scalar",
                f"{function}: the tensor {name} follows the scalar {scalar}; tensors come first",
            )
        if not is_tensor:
            scalar = name


def check_views(function: str, windows: Sequence[tuple[str, object, str]]) -> None:
    """Windows of a dispatch, as (name, allocation, dtype). Raises shared_buffer where one allocation is
    seen as two dtypes, as when signals lie over data."""
    seen: dict[int, tuple[str, str]] = {}
    for name, allocation, dtype in windows:
        other, as_dtype = seen.setdefault(id(allocation), (name, dtype))
        if as_dtype != dtype:
            raise broken(
                "shared_buffer",
                f"{function}: {other} ({as_dtype}) and {name} ({dtype}) are both over {allocation!r}",
            )


def check_dispatched(dispatched: Sequence[int | None], device_ids: Sequence[int]) -> None:
    """The logical ranks that were dispatched, against the cards of the run. Raises dispatch_loop."""
    missing = [r for r in range(len(device_ids)) if r not in dispatched]
    if missing and dispatched:
        raise broken(
            "dispatch_loop",
            f"device_ids {list(device_ids)} are {len(device_ids)} cards, and no dispatch reaches "
            f"{'rank' if len(missing) == 1 else 'ranks'} {', '.join(map(str, missing))}",
        )


def macros_in(text: str) -> list[tuple[int, str]]:
    """Lines of a program that set one of MACROS in the environment, as (line, macro)."""
    sets = re.compile(
        rf"""environ(?:\.setdefault|\.update|\.__setitem__|\[).*?({'|'.join(MACROS)})"""
        rf"""|setenv\(\s*['"]({'|'.join(MACROS)})"""
    )
    return [
        (number, found[1] or found[2])
        for number, line in enumerate(text.splitlines(), 1)
        if (found := sets.search(line.partition("#")[0])) is not None
    ]
