"""What a region's body does to the tensors it captures, read off its statements.

The compiler makes a function of a region, whose parameters get their directions from how the body uses
them; the runtime's edges between tasks rest on those. Here the same is told of the syntax tree: which
operand of each operation is read and which is written. A name that is bound to another (`x = out`,
`out = pl.store(t, at, out)`, a loop's `init_values`) stands for that one.

Not modelled: names that reach an operation through a list, a conditional expression or an own Python
function; they count as read.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(slots=True)
class Access:
    """What happens to one captured name."""

    reads: bool = False
    writes: bool = False


# By operation: its operands in order, up to the last tensor; `>` marks one that is written, `=` one that
# is read and written. Everything else is read.
OPERANDS: dict[str, tuple[str, ...]] = {
    "store": ("tile", "offsets", ">output_tensor"),
    "assemble": (">target", "source"),
    "write": (">dst",),
    "put": (">dst", "peer", "src"),
    "get": (">dst", "peer", "src"),
    "remote_store": ("src", ">target"),
    "notify": (">target",),
    "wait": ("signal",),
    "defer_wait": ("signal",),
    "mscatter": ("src", "idx", ">output_tensor"),
    "barrier": ("=signal",),
    "broadcast": ("=target", "=signal"),
    "allgather": ("local_data", ">target", "=signal"),
    "all_to_all": ("input", ">target", "=signal"),
    "all_to_all_v": ("input", ">target", "=signal", "send_counts", ">recv_counts"),
    "reduce_scatter": ("=target", "=signal"),
    "allreduce": ("=target", "=signal"),
}
_OTHER_NAMES = {"src_tile": "src", "data": "target"}
# Operations that return one of their operands.
RETURNS = {
    "store": "output_tensor", "assemble": "target", "mscatter": "output_tensor", "barrier": "signal",
    "broadcast": "target", "allgather": "target", "all_to_all": "target", "reduce_scatter": "target",
    "allreduce": "target",
}
MODULES = frozenset(("pl", "pld"))


def accesses(
    body: list[ast.stmt], names: list[str]
) -> tuple[dict[str, Access], list[ast.expr], dict[str, str]]:
    """By captured name, whether the body reads and writes it; the calls of kernels in it; and by name,
    which captured one it stands for in the end.

    A call of a kernel is an expression `(function, (positional names), {keyword: name})`, for whoever
    knows the function's parameters.
    """
    reader = _Reader(names, body)
    for statement in body:
        reader.visit(statement)
    return reader.found, reader.callees, reader.aliases


class _Reader(ast.NodeVisitor):
    def __init__(self, names: list[str], body: list[ast.stmt]) -> None:
        self.found = {name: Access() for name in names}
        self.callees: list[ast.expr] = []
        self.aliases = {name: name for name in names}
        self._stored = {
            node.id for statement in body for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def _touch(self, name: str, *, reads: bool = False, writes: bool = False) -> None:
        access = self.found.get(self.aliases.get(name, ""))
        if access is not None:
            access.reads |= reads
            access.writes |= writes

    # Names ----------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        """A name read by something that is not told apart below."""
        if isinstance(node.ctx, ast.Load):
            self._touch(node.id, reads=True)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A binding may give a captured tensor another name."""
        self._bind(node.targets[0], node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The same with a type."""
        if node.value is not None:
            self._bind(node.target, node.value)
            self.visit(node.target)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(value, ast.Name) and isinstance(target, ast.Name):
            self._rename(target.id, value.id)
            return
        self.visit(value)
        if isinstance(target, ast.Name):
            kept = self._returned(value) if isinstance(value, ast.Call) else None
            if kept is not None:
                self._rename(target.id, kept)
            else:
                self.aliases.pop(target.id, None)

    def _rename(self, new: str, old: str) -> None:
        if old in self.aliases:
            self.aliases[new] = self.aliases[old]
        else:
            self.aliases.pop(new, None)

    def _returned(self, call: ast.Call) -> str | None:
        operation = last_name(call.func)
        if operation not in RETURNS:
            return None
        operand = self._operands(operation, call).get(RETURNS[operation])
        return operand.id if isinstance(operand, ast.Name) else None

    def visit_For(self, node: ast.For) -> None:
        """`for i, (x,) in pl.range(n, init_values=(y,))` names y x."""
        self.visit(node.iter)
        if isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Tuple):
            given = next((k.value for k in node.iter.keywords if k.arg == "init_values"), None)
            carried = node.target.elts[-1]
            if isinstance(given, ast.Tuple) and isinstance(carried, ast.Tuple):
                for target, value in zip(carried.elts, given.elts, strict=False):
                    if isinstance(target, ast.Name) and isinstance(value, ast.Name):
                        self._rename(target.id, value.id)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`out[0:8, :] = value` writes `out`."""
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            self._touch(node.value.id, writes=True)
            self.visit(node.slice)
        else:
            self.generic_visit(node)

    # Calls ----------------------------------------------------------------------------------------

    def _operands(self, operation: str, call: ast.Call) -> dict[str, ast.expr]:
        order = [name.lstrip(">=") for name in OPERANDS[operation]]
        named = dict(zip(order, call.args, strict=False))
        named |= {_OTHER_NAMES.get(k.arg, k.arg): k.value for k in call.keywords if k.arg}
        return named

    def visit_Call(self, node: ast.Call) -> None:
        """An operation of pl or pld, or a kernel."""
        operation = last_name(node.func)
        if root_name(node.func) in MODULES:
            self._operation(operation, node)
            return
        root = root_name(node.func)
        if root is not None and root not in self._stored and operation not in vars_of_python():
            self._kernel(node)
            return
        self.generic_visit(node)

    def _operation(self, operation: str, node: ast.Call) -> None:
        marks = {name.lstrip(">="): name[0] for name in OPERANDS.get(operation, ())}
        named = self._operands(operation, node) if operation in OPERANDS else {}
        written = {id(value) for key, value in named.items() if marks.get(key) == ">"}
        for key, value in named.items():
            if marks.get(key) in (">", "=") and isinstance(value, ast.Name | ast.Subscript):
                name = _memory(value)
                if name is not None:
                    adds = any(k.arg == "atomic" for k in node.keywords)
                    self._touch(name, writes=True, reads=adds or marks[key] == "=")
        for value in (*node.args, *(k.value for k in node.keywords)):
            if id(value) not in written or not isinstance(value, ast.Name):
                self.visit(value)

    def _kernel(self, node: ast.Call) -> None:
        """A function of the program: its parameters say what happens to each argument."""
        def told(value: ast.expr) -> ast.expr:
            name = _memory(value)
            return ast.Constant(None if name is None else self.aliases.get(name))

        for value in (*node.args, *(k.value for k in node.keywords)):
            if _memory(value) is None:
                self.visit(value)
            elif isinstance(value, ast.Subscript):
                self.visit(value.slice)
        self.callees.append(ast.Tuple([
            node.func, ast.Tuple([told(value) for value in node.args], ast.Load()),
            ast.Dict(
                [ast.Constant(k.arg) for k in node.keywords if k.arg],
                [told(k.value) for k in node.keywords if k.arg],
            ),
        ], ast.Load()))


def _memory(node: ast.expr) -> str | None:
    """The name of `x` and of `x[...]`; None for anything else."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def vars_of_python() -> frozenset[str]:
    """Names of functions that take tensors without doing anything to them."""
    return frozenset(
        ("len", "print", "range", "int", "float", "min", "max", "isinstance", "tuple", "list")
    )


def last_name(node: ast.expr) -> str:
    """`store` of `pl.tile.store`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def root_name(node: ast.expr) -> str | None:
    """`pl` of `pl.tile.store`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
