"""What kind of file a user hands over, by what it imports, and its code; nothing of it is run.

    kind_of(text, "train.py")              # "torch"
    kind_of(text, "train.py", "scenario")  # what --as says holds, whatever the file imports

A file that imports `harness` (or `scenarios`) is a scenario, whatever else it imports; one that imports
`pypto` holds `pld` programs; one that imports torch.distributed or torch.nn.parallel, or names
torch.distributed or torch.nn.parallel after `import torch`, is a torch.distributed program. Imports count
wherever they stand (inside functions, in try), but not under `if TYPE_CHECKING:`, which never runs.

Not modelled: imports by name at run time (importlib, `__import__`, exec), and what the file's own modules
import (a relative import counts for nothing): `--as` is for those.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Literal, get_args

from harness.errors import UsageError, UserFileError, nearest

Kind = Literal["scenario", "torch", "pld"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_BY_MODULE: tuple[tuple[str, Kind], ...] = (  # the first that is imported decides
    ("harness", "scenario"),
    ("scenarios", "scenario"),  # what is built on them: scenarios.store.adapters
    ("pypto", "pld"),
    ("torch.distributed", "torch"),
    ("torch.nn.parallel", "torch"),
)


def kind_of(text: str, path: str, named: str | None = None) -> Kind:
    """The kind of the file `path` whose text is given. named: the user's own word for it (`--as`).

    UsageError: `named` is no kind. UserFileError: the text is no Python (with its line), or imports
    nothing that tells what it is.
    """
    if named is not None:
        if named not in KINDS:
            raise UsageError(f"--as {named!r}: {nearest(named, KINDS)}")
        return next(kind for kind in KINDS if kind == named)
    names = set(_dotted(_parsed(text, path)))
    for module, kind in _BY_MODULE:
        if any(name == module or name.startswith(module + ".") for name in names):
            return kind
    raise UserFileError(
        f"{path}: imports none of harness, torch.distributed and pypto, so what it is cannot be told; "
        "say --as scenario, --as torch or --as pld"
    )


@functools.lru_cache(maxsize=64)
def compiled(path: str, text: bytes) -> CodeType:
    """The code of the user's file `path`. Raises UserFileError."""
    try:
        return compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise UserFileError(f"{path}:{error.lineno}: {' '.join(error.msg.split())}") from None
    except ValueError as error:
        raise UserFileError(f"{path}: {error}") from None


def _parsed(text: str, path: str) -> ast.Module:
    try:
        with warnings.catch_warnings(action="ignore"):  # of the user's text: they come when it runs
            return ast.parse(text.removeprefix("\ufeff"), path)
    except SyntaxError as error:
        raise UserFileError(f"{path}:{error.lineno or 1}: {error.msg}") from None
    except ValueError as error:  # null bytes, before Python 3.12
        raise UserFileError(f"{path}: {error}") from None
    except (RecursionError, MemoryError):
        raise UserFileError(f"{path}: nested too deeply for Python's parser") from None


def _dotted(tree: ast.Module) -> Iterator[str]:
    """Dotted names that the file imports, or reaches from a module it imports, in full."""
    nodes = list(_that_run(tree))
    bound: dict[str, str] = {}  # what names stand for modules
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                full = alias.name if alias.asname else alias.name.partition(".")[0]
                bound[alias.asname or full] = full
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full
                bound[alias.asname or alias.name] = full
    for node in nodes:
        if isinstance(node, ast.Attribute):
            written = _written(node)
            first, _, rest = written.partition(".")
            if first in bound:
                yield f"{bound[first]}.{rest}"


def _that_run(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node of the file, but for the bodies of `if TYPE_CHECKING:`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _written(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _written(node: ast.AST) -> str:
    """`a.b.c`, if that is all the expression is; else the empty text."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
