"""`predicate=(tensor[indices] > 0)` of a task: read when it is dispatched, not when it is submitted.

PyPTO matches the comparison by its text. So rewriting.py makes `gate=(tensor, indices, operator, number)`
of it before the program runs; `gate_of` makes a Gate of that. The scheduler looks once what the task
depends on has ended; where the comparison is false the task is skipped, and what depends on it goes on.

Not modelled: a predicate of a function whose source is not to be had (refused, as any other form is).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from harness.frontends.pypto.operands import view_of
from harness.frontends.pypto.operate import read
from harness.frontends.pypto.rules import broken
from harness.frontends.pypto.scalars import exact

TAKERS = frozenset(("submit", "spmd_submit", "spmd"))
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Gt": operator.gt, "Lt": operator.lt, "GtE": operator.ge,
    "LtE": operator.le,
}


class Gate(NamedTuple):
    """What a task is skipped by, if it does not hold when it is dispatched."""

    tensor: Any
    indices: tuple[int, ...]
    comparison: str
    number: int

    def holds(self) -> bool:
        """Read the element, as an operation of whoever runs."""
        found = exact(read(view_of(self.tensor, "predicate").cell(list(self.indices))))
        return COMPARISONS[self.comparison](found, self.number)


class _Never(Gate):
    """Of a task without work: it ends without a core."""

    def holds(self) -> bool:
        """No."""
        return False


NEVER = _Never(None, (), "Eq", 0)


def gate_of(options: dict[str, Any]) -> Gate | None:
    """The gate among the options of a task. Raises PldRuleError (`predicate`) for any other form."""
    if options.get("predicate") is not None:
        raise broken("predicate", "predicate= is one comparison, tensor[indices] OP number")
    given = options.get("gate")
    if given is None:
        return None
    tensor, indices, comparison, number = given
    return Gate(tensor, tuple(map(exact, indices)), comparison, exact(number))


def has_predicate(code: CodeType) -> bool:
    """Whether a call in it has the keyword."""
    return any(isinstance(one, tuple) and "predicate" in one for one in code.co_consts)


class Predicates(ast.NodeTransformer):
    """Makes `gate=` of each `predicate=` that is one comparison of an element with a number."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """pl.submit(…), pl.spmd_submit(…), pl.spmd(…)"""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in TAKERS:
            for keyword in node.keywords:
                spec = _spec(keyword.value) if keyword.arg == "predicate" else None
                if spec is not None:
                    keyword.arg, keyword.value = "gate", spec
        return node


def _spec(node: ast.expr) -> ast.expr | None:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    element, comparison, number = node.left, type(node.ops[0]).__name__, node.comparators[0]
    if not isinstance(element, ast.Subscript) or comparison not in COMPARISONS:
        return None
    indices = element.slice.elts if isinstance(element.slice, ast.Tuple) else [element.slice]
    if any(isinstance(one, ast.Slice) for one in indices) or isinstance(number, ast.Subscript | ast.Call):
        return None
    return ast.copy_location(ast.Tuple(
        [element.value, ast.Tuple(indices, ast.Load()), ast.Constant(comparison), number], ast.Load()
    ), node)
