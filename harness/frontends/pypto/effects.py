"""What a kernel does to its arguments: as declared, and as the compiler finds out from its body.

A parameter that is declared In and that the kernel writes (a window that it puts to, a cell that it
notifies) becomes Out or InOut, so that whoever reads it comes after. One declared Out or InOut stays as
it is. What the kernel returns is told as well: which of its parameters.

Not modelled: parameters that reach an operation in a way that directions.py does not see; they stay In.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.frontends.pypto.directions import Access, accesses, last_name, root_name

READ = ("incore", "inline")  # the kinds of functions whose body tells; inline ones are spliced in


@dataclass(slots=True)
class Effects:
    """directions: in, out or inout, a parameter. results: the positions of those that it returns, in
    order; None where the source does not tell."""

    directions: list[str]
    results: list[int] | None = None


def effects_of(function: Any, owner: Any) -> Effects:
    """What `function`, of the program `owner`, does. Its source is read once."""
    found: Effects | None = function.effects
    if found is None:
        definition = definition_of(function.__wrapped__) if function.kind in READ else None
        unsaid = "inout" if definition is None or function.kind == "incore" else "in"
        declared = [unsaid if one is None else one.direction for one in function.annotations]
        found = function.effects = Effects(declared)  # known while it is found out: recursion ends
        if definition is not None:
            _find_out(found, function, owner, definition)
    return found


def _find_out(found: Effects, function: Any, owner: Any, definition: ast.FunctionDef) -> None:
    names = function.names
    results = _results(definition)
    access, callees, aliases = accesses(definition.body, names)
    for callee in callees:
        assert isinstance(callee, ast.Tuple)
        _merge(access, callee, _known(callee.elts[0], function, owner), owner)
    for index, name in enumerate(names):
        if found.directions[index] == "in" and access[name].writes:
            found.directions[index] = "inout" if access[name].reads else "out"
    if results and all(aliases.get(name) in names for name in results):
        found.results = [names.index(aliases[name]) for name in results]


def _results(definition: ast.FunctionDef) -> list[str]:
    """Gives what the function returns names of its own; none, where it returns at several places."""
    if sum(isinstance(node, ast.Return) for node in ast.walk(definition)) != 1:
        return []
    finder = _Results()
    definition.body = finder.visit(ast.Module(definition.body, [])).body
    return finder.names


class _Results(ast.NodeTransformer):
    """Makes the one `return` of a kernel assignments to names, which directions.py follows."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Not those of functions inside."""
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        """`return a, b`"""
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        found = []
        for part in parts:
            self.names.append(f"result {len(self.names)}")
            name = ast.Name(self.names[-1], ast.Store())
            found.append(ast.Assign([name], part or ast.Constant(None)))
        return found


def _merge(access: dict[str, Access], callee: ast.Tuple, called: Any, owner: Any) -> None:
    """What a function that is called does to names it is given."""
    _, args, named = callee.elts
    assert isinstance(args, ast.Tuple)
    assert isinstance(named, ast.Dict)
    pairs: list[tuple[int, Any]] = list(enumerate(args.elts))
    names = getattr(called, "names", [])
    pairs += [
        (names.index(key.value), value) for key, value in zip(named.keys, named.values, strict=True)
        if isinstance(key, ast.Constant) and key.value in names
    ]
    directions = [] if called is None else effects_of(called, owner).directions
    for index, name in pairs:
        one = access.get(str(name.value)) if isinstance(name, ast.Constant) else None
        if one is not None:
            direction = directions[index] if index < len(directions) else "in"
            one.reads |= direction != "out"
            one.writes |= direction != "in"


def _known(node: ast.expr, function: Any, owner: Any) -> Any:
    """The function of the program that an expression names."""
    name = last_name(node)
    if root_name(node) == "self":
        found = vars(type(owner)).get(name)
    else:
        found = named_in(function.body, name)
    return found if hasattr(found, "annotations") and hasattr(found, "kind") else None


def named_in(body: Callable[..., Any], name: str) -> Any:
    """What a name of a function's surroundings stands for."""
    code = body.__code__
    if name in code.co_freevars:
        cell = (body.__closure__ or ())[code.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:  # not bound yet
            return None
    return body.__globals__.get(name)


def definition_of(body: Callable[..., Any]) -> ast.FunctionDef | None:
    """The syntax tree of a function; None where its source is not to be had."""
    try:
        lines, _ = inspect.getsourcelines(body)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    return next(
        (node for node in ast.walk(tree)
         if isinstance(node, ast.FunctionDef) and node.name == body.__name__), None
    )
