"""Bodies that run elsewhere: `with pl.at(...)` and its kin, made functions before the program runs.

A region (`with pl.at(...)`, `with pl.spmd(...)`, `for i in pl.spmd(n)`, `for i in pl.split_aiv(2, …)`) is
a task of its own, which plain Python would run at once, in place. So the function that holds one is
compiled again: each region's body becomes a function of the local names that it uses, captured by value
where the region stands, and the region becomes a call of `regions.enter`. Line numbers stay the user's.
Names that a body binds and that are used outside it come back as what they stand for, or as a `Later`.

More things that plain Python cannot say: `pl.cond(c)` ends its `while_`, a loop of no rounds leaves the
name that its `pl.yield_` binds with the initial value, `predicate=` is no value (predicates.py).

Not modelled: `return`, `break` and `continue` out of a region; they are refused with file and line. A
function whose source is not to be had is left as it is, and its regions run in place.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from harness.errors import UserFileError
from harness.frontends.pypto.directions import Access, accesses
from harness.frontends.pypto.predicates import Predicates, has_predicate

REGIONS_WITH = frozenset(("at", "spmd"))
REGIONS_FOR = frozenset(("spmd", "split_aiv"))
LOOPS = frozenset(("range", "parallel", "pipeline"))
NAMES = REGIONS_WITH | REGIONS_FOR | {"cond", "yield_"}
SUBMITS = frozenset(("submit", "spmd_submit", "task_dummy"))
LABEL = "__pld_region_"
DOOR = "__pld__"  # the name by which a rewritten function reaches `enter`


def rewritten(function: Callable[..., Any], enter: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its regions as calls of `enter`; itself, if it has none.

    enter: `enter(kind, body, names, scope, outside, access, aliases, callees, *args, **kwargs)`, see
    regions.py.
    Raises UserFileError for what cannot be rewritten.
    """
    code = getattr(function, "__code__", None)
    if code is None or not (NAMES.intersection(code.co_names) or has_predicate(code)):
        return function
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return function
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    definition = next(
        (node for node in ast.walk(tree)
         if isinstance(node, ast.FunctionDef) and node.name == function.__name__), None
    )
    if definition is None:
        return function
    return _compiled(function, definition, enter)


def has_tasks(function: Callable[..., Any]) -> bool:
    """Whether a function, rewritten, makes tasks: it holds a region, or submits kernels."""
    code = getattr(function, "__code__", None)
    return code is not None and (DOOR in code.co_freevars or not SUBMITS.isdisjoint(code.co_names))


def _compiled(
    function: Callable[..., Any], definition: ast.FunctionDef, enter: Callable[..., Any]
) -> Callable[..., Any]:
    code = function.__code__
    definition.decorator_list = []
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]
    definition.args.kw_defaults = [
        None if one is None else ast.Constant(None) for one in definition.args.kw_defaults
    ]
    Predicates().visit(definition)
    rewriter = _Rewriter(code, definition)
    definition.body = rewriter.bodies(definition.body)
    free = [*code.co_freevars, DOOR]
    factory = ast.FunctionDef(
        name="__pld_factory__", decorator_list=[], body=[definition],
        args=ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, []),
    )
    ast.copy_location(factory, definition)
    module = ast.fix_missing_locations(ast.Module([factory], []))
    outer = compile(module, code.co_filename, "exec")
    made = _code_named(_code_named(outer, "__pld_factory__"), code.co_name)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    cells[DOOR] = CellType(enter)
    made = _as_written(made, code.co_name).replace(co_qualname=code.co_qualname)
    new = FunctionType(
        made, function.__globals__, function.__name__, function.__defaults__,
        tuple(cells[name] for name in made.co_freevars),
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.__annotations__ = function.__annotations__
    new.__qualname__ = function.__qualname__
    new.__module__ = function.__module__
    new.__doc__ = function.__doc__
    return new


def _as_written(code: CodeType, name: str) -> CodeType:
    """Regions are called as the function that they stand in; in a finding's sites by number too."""
    parts = tuple(
        _as_written(one, name) if isinstance(one, CodeType) else one for one in code.co_consts
    )
    if code.co_name.startswith(LABEL):
        number = code.co_name.removeprefix(LABEL).rstrip("_")
        return code.replace(co_consts=parts, co_name=name, co_qualname=f"{name}.region {number}")
    return code.replace(co_consts=parts)


def _code_named(code: CodeType, name: str) -> CodeType:
    return next(
        one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name
    )


class _Rewriter:
    """One function's statements, rewritten."""

    def __init__(self, code: CodeType, definition: ast.FunctionDef) -> None:
        self._locals = frozenset(code.co_varnames) | frozenset(code.co_cellvars)
        self._file = code.co_filename
        self._definition = definition
        self._wanted = [reads(definition.body)]  # by enclosing region, the names that are read in it
        self._number = 0

    def bodies(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The statements that stand for `statements`."""
        out: list[ast.stmt] = []
        for statement in statements:
            out += self._one(statement)
        return out

    def _one(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.With) and _is_region(node):
            item = node.items[0]
            return self._region(node, item.context_expr, item.optional_vars, None)
        if isinstance(node, ast.For):
            if _is_region(node):
                return self._region(node, node.iter, None, node.target)
            if _called(node.iter) in LOOPS:
                before = _initial(node)
                self._inside(node)
                return [*before, node]
        if isinstance(node, ast.Expr) and _called(node.value) == "cond":
            assert isinstance(node.value, ast.Call)
            stop = ast.If(ast.UnaryOp(ast.Not(), node.value), [ast.Break()], [])
            return [ast.copy_location(stop, node)]
        self._inside(node)
        return [node]

    def _inside(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            return
        for name in ("body", "orelse", "finalbody"):
            if isinstance(getattr(node, name, None), list):
                setattr(node, name, self.bodies(getattr(node, name)))
        for handler in getattr(node, "handlers", ()):
            handler.body = self.bodies(handler.body)
        for case in getattr(node, "cases", ()):
            case.body = self.bodies(case.body)

    def _region(
        self, node: ast.With | ast.For, call: ast.expr, bound: ast.expr | None,
        target: ast.expr | None,
    ) -> list[ast.stmt]:
        """A region: its body's function, then the call that hands it over."""
        assert isinstance(call, ast.Call)
        kind = _called(call)
        self._refuse(node, str(kind))
        index = [] if target is None else [target.id] if isinstance(target, ast.Name) else None
        if index is None:
            raise self._error(node, f"pl.{kind} with {ast.unparse(target or call)!r} as its target")
        sure: set[str] = set()
        read = _exposed(node.body, sure)
        outside = sorted(_stored(node.body) & self._locals & self._wanted[-1])
        names = sorted(((read | (set(outside) - sure)) & self._locals).difference(index))
        access, callees, aliases = accesses(node.body, names)
        self._number += 1
        label = f"{LABEL}{self._number}__"
        self._wanted.append(reads(node.body) | set(outside))
        inner = self.bodies(node.body)
        self._wanted.pop()
        body = ast.FunctionDef(
            name=label, decorator_list=[],
            args=ast.arguments([], [ast.arg(name) for name in (*index, *names)], None, [], [], None, []),
            body=[*inner, ast.Return(_call("locals"))],
        )
        door = ast.Call(
            ast.Name(DOOR, ast.Load()),
            [
                ast.Constant(kind), ast.Name(label, ast.Load()), _strings(names),
                _call("locals"), _strings(outside), _values(access),
                _texts({name: aliases[name] for name in outside if name in aliases}),
                ast.Tuple(callees, ast.Load()), *call.args,
            ],
            [ast.keyword("__named__", ast.Constant(bound is not None or target is not None)),
             *call.keywords],
        )
        results = [bound or ast.Name("__pld_task__", ast.Store())]
        results += [ast.Name(name, ast.Store()) for name in outside]
        handed = ast.Assign([ast.Tuple(results, ast.Store())], door)
        for made in (body, handed):
            ast.copy_location(made, node)
        ast.copy_location(body.body[-1], node.body[-1])
        return [body, handed]

    def _refuse(self, node: ast.With | ast.For, kind: str) -> None:
        for inner in _own(node.body):
            if isinstance(inner, ast.Return):
                raise self._error(inner, f"`return` inside pl.{kind}")
            if isinstance(inner, ast.Nonlocal | ast.Global | ast.Yield | ast.Await):
                raise self._error(inner, f"`{ast.unparse(inner)}` inside pl.{kind}")
        for jump in _jumps(node.body):
            raise self._error(jump, f"`{ast.unparse(jump)}` out of pl.{kind}")

    def _error(self, node: ast.AST, what: str) -> UserFileError:
        line = getattr(node, "lineno", self._definition.lineno)
        return UserFileError(f"{self._file}:{line}: {what} is not simulated")


def _called(node: ast.expr) -> str | None:
    """The last name of what is called, `at` of `pl.at(...)`; None for anything else."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        root = node.func.value
        return node.func.attr if isinstance(root, ast.Name) and root.id != "self" else None
    return node.func.id if isinstance(node.func, ast.Name) else None


def _call(name: str) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [], [])


def _values(access: dict[str, Access]) -> ast.expr:
    """A dict display of plain values."""
    return ast.Dict(
        [ast.Constant(name) for name in access],
        [
            ast.Tuple([ast.Constant(one.reads), ast.Constant(one.writes)], ast.Load())
            for one in access.values()
        ],
    )


def _strings(names: list[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def _texts(held: dict[str, str]) -> ast.expr:
    return ast.Dict([ast.Constant(name) for name in held], [ast.Constant(one) for one in held.values()])


def _loads(tree: ast.AST) -> set[str]:
    """The names that are read, by an augmented assignment too."""
    return {
        node.id for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
    } | {
        node.target.id for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of statements in a compound one."""
    found = [getattr(node, name) for name in ("body", "orelse", "finalbody") if getattr(node, name, None)]
    found += [one.body for one in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
    return found


def _head(node: ast.stmt) -> set[str]:
    """The names that a compound statement reads outside its blocks."""
    blocks = ("body", "orelse", "finalbody", "handlers", "cases")
    parts = [value for name, value in ast.iter_fields(node) if name not in blocks]
    flat = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return set().union(*(_loads(one) for one in flat if isinstance(one, ast.AST)), set())


def _is_region(node: ast.stmt) -> bool:
    if isinstance(node, ast.With):
        return len(node.items) == 1 and _called(node.items[0].context_expr) in REGIONS_WITH
    return isinstance(node, ast.For) and _called(node.iter) in REGIONS_FOR


def reads(statements: list[ast.stmt]) -> set[str]:
    """The names that statements read, of regions in them only what those capture."""
    found: set[str] = set()
    for node in statements:
        blocks = _blocks(node)
        if not blocks or isinstance(node, ast.FunctionDef | ast.ClassDef):
            found |= _loads(node)
        elif _is_region(node):
            found |= _head(node) | exposed(blocks[0])
        else:
            found |= _head(node).union(*map(reads, blocks))
    return found


def exposed(statements: list[ast.stmt]) -> set[str]:
    """The names that statements may read before they bind them."""
    return _exposed(statements, set())


def _exposed(statements: list[ast.stmt], bound: set[str]) -> set[str]:
    """The same; `bound` grows by the names that are bound whatever way is taken."""
    found: set[str] = set()
    for node in statements:
        blocks = _blocks(node)
        if not blocks or isinstance(node, ast.FunctionDef | ast.ClassDef):
            found |= _loads(node) - bound
            bound |= _stored([node])
            continue
        found |= _head(node) - bound
        targets = _stored_in_head(node)
        ways = [bound | targets for _ in blocks]
        for block, way in zip(blocks, ways, strict=True):
            found |= _exposed(block, way)
        if isinstance(node, ast.With):
            bound |= ways[0]
        elif isinstance(node, ast.If) and len(blocks) == 2:
            bound |= ways[0] & ways[1]
    return found


def _stored_in_head(node: ast.stmt) -> set[str]:
    targets = [node.target] if isinstance(node, ast.For) else []
    if isinstance(node, ast.With):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    return {
        one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
    }


def _stored(statements: list[ast.stmt]) -> set[str]:
    return {
        node.id for node in _own(statements)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _own(statements: list[ast.stmt]) -> list[ast.AST]:
    """The nodes of statements, without those of functions defined in them."""
    found: list[ast.AST] = []
    todo: list[ast.AST] = list(statements)
    while todo:
        node = todo.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))
    return found


def _jumps(statements: list[ast.stmt]) -> list[ast.stmt]:
    """`break` and `continue` that leave the statements."""
    found: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.Break | ast.Continue):
            found.append(node)
        elif not isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                found += _jumps(getattr(node, name, None) or [])
    return found


def _initial(loop: ast.For) -> list[ast.stmt]:
    """What a loop of no rounds leaves in the names of its last `pl.yield_`."""
    assert isinstance(loop.iter, ast.Call)
    given = next((one.value for one in loop.iter.keywords if one.arg == "init_values"), None)
    last = loop.body[-1]
    if not isinstance(given, ast.Tuple) or not isinstance(last, ast.Assign | ast.AnnAssign):
        return []
    if last.value is None or _called(last.value) != "yield_":
        return []
    target = last.targets[0] if isinstance(last, ast.Assign) else last.target
    single = isinstance(target, ast.Name)
    if not single and not isinstance(target, ast.Tuple):
        return []
    if single and len(given.elts) != 1:
        return []
    value: ast.expr = given.elts[0] if single else given
    before = ast.Assign([copy.deepcopy(target)], copy.deepcopy(value))
    return [ast.copy_location(before, loop)]
