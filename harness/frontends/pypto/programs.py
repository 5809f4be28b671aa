"""A pld program's main, run as ordinary Python around its host calls.

    main = program_of("ring.py", text, ("-d", "0,1"))
    main.calls          each host call that it makes, with copies of its arguments and its outputs
    main.judged(0, outputs)     what the main makes of other outputs of its first call

The main runs once, each call in the default schedule; after that, plans repeat a call from its copies,
and the main's own check is asked about outputs that differ (it runs again, and is given them, without any
device). So a golden check costs nothing until a schedule changes an output. Mains run with the same
random numbers each time.

Not modelled: mains whose calls depend on the clock or on files that they change.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
import torch

from harness.ambient import same_numbers
from harness.errors import PldRuleError, UnknownName, UserFileError
from harness.fabric.frames import user_frame
from harness.frontends.kinds import compiled
from harness.frontends.pypto.calls import (
    CallFailed,
    Live,
    Performer,
    Snapshot,
    Substituted,
    performed_by,
)
from harness.frontends.pypto.comparisons import compared
from harness.frontends.pypto.modules import installed
from harness.frontends.pypto.pytest_items import Item, Skipped, items_of, marks_allowed
from harness.record import place

PROGRAMS_MAX = 256
MAIN = "main"
MODULE = "rankfault_pld_tests"
Failed = pytest.fail.Exception


@dataclass(frozen=True, slots=True)
class Raised:
    """How a main ended that did not end well: what it raised, at which user's line."""

    error: BaseException
    code: CodeType | None
    lasti: int


class Program:
    """What makes host calls: a file's main, or one test item. body: runs it."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._blind: dict[int, bool] = {}
        live = Live()
        self.skipped = ""
        try:
            self.printed, self.raised = _ran(body, live)
        except Skipped as error:
            self.printed, self.raised, self.skipped = "", None, str(error)
        self.calls: list[Snapshot] = live.snapshots

    @property
    def failed(self) -> Raised | None:
        """What it raised by itself: no call failed, and no rule stopped it."""
        raised = self.raised
        return None if raised is None or isinstance(raised.error, CallFailed | PldRuleError) else raised

    @property
    def refused(self) -> Raised | None:
        """The rule that stopped it, between its calls."""
        return self.raised if self.raised and isinstance(self.raised.error, PldRuleError) else None

    def judged(self, number: int, outputs: Sequence[torch.Tensor]) -> Raised | None:
        """What it raises when call `number` has these outputs and the others have theirs."""
        return self._with(number, outputs)

    def blind(self, number: int) -> bool:
        """Whether it accepts outputs of call `number` that cannot be right: it checks nothing."""
        if number not in self._blind:
            wrong = [_spoilt(one) for one in self.calls[number].outputs]
            self._blind[number] = self._with(number, wrong) is None
        return self._blind[number]

    def due(self, number: int, outputs: Sequence[torch.Tensor]) -> dict[str, list[Any]] | None:
        """By name and rank, what its check would have in place of these outputs of call `number`; None
        where that does not tell."""
        wanted = compared(
            lambda performer: _ran(self._body, performer), self._given(number, outputs), number
        )
        return None if wanted is None else replace(self.calls[number], outputs=wanted).expected()

    def _with(self, number: int, outputs: Sequence[torch.Tensor]) -> Raised | None:
        return _ran(self._body, Substituted(self._given(number, outputs)))[1]

    def _given(self, number: int, outputs: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        given = [call.outputs for call in self.calls]
        given[number] = list(outputs)
        return given


def _spoilt(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.bool:
        return ~tensor
    return tensor + torch.ones_like(tensor) * (1 + tensor.abs().max() if tensor.numel() else 1)


def _ran(body: Callable[[], None], performer: Performer) -> tuple[str, Raised | None]:
    """Run it; what it printed and what it raised."""
    out = io.StringIO()
    raised = None
    with same_numbers(), contextlib.redirect_stdout(out), performed_by(performer), installed(asked=True):
        try:
            body()
        except SystemExit as error:
            if error.code not in (None, 0):
                raised = Raised(error, *user_frame(error))
        except (Exception, Failed) as error:
            raised = Raised(error, *user_frame(error))
    return out.getvalue(), raised


@contextlib.contextmanager
def as_main(path: str, argv: Sequence[str], module: ModuleType) -> Iterator[None]:
    """`python path argv...`: sys.argv, sys.path and `__main__` as there."""
    held = sys.argv, list(sys.path), sys.modules.get("__main__"), set(sys.modules)
    sys.argv = [path, *argv]
    sys.path[:0] = [str(Path(path).resolve().parent), str(Path.cwd())]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.argv, sys.path[:] = held[0], held[1]
        if held[2] is not None:
            sys.modules["__main__"] = held[2]
        for name in set(sys.modules) - held[3]:  # the program's own modules are loaded afresh each time
            found = getattr(sys.modules[name], "__file__", None) or ""
            if found.startswith(str(Path(path).resolve().parent)):
                del sys.modules[name]


def _load(path: str, text: bytes, name: str, argv: Sequence[str]) -> ModuleType:
    """Run the file as a module."""
    module = ModuleType(name)
    module.__dict__.update(__file__=str(Path(path).resolve()), __builtins__=__builtins__)
    # What reads sources (rewriting.py) must see this text, whatever is in the file.
    lines = text.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[path] = len(text), None, lines, path
    with as_main(path, argv, module):
        exec(compiled(path, text), module.__dict__)
    return module


@functools.lru_cache(maxsize=PROGRAMS_MAX)
def _items(path: str, text: bytes) -> dict[str, Item]:
    """The tests of a file by name. Raises UserFileError."""
    code = compiled(path, text)
    with installed(asked=True), marks_allowed():
        try:
            module = _load(path, text, MODULE, ())
        except (Exception, SystemExit, Skipped) as error:
            frames = user_frame(error)
            at = place(*frames) if frames[0] is not None else code.co_filename
            raise UserFileError(f"{at}: {type(error).__name__}: {' '.join(str(error).split())}") from None
        return {item.name: item for item in items_of(module)}


def item_names(path: str, text: bytes) -> list[str]:
    """The names of a file's tests, in order. Raises UserFileError."""
    return list(_items(path, text))


@functools.lru_cache(maxsize=PROGRAMS_MAX)
def program_of(path: str, text: bytes, argv: tuple[str, ...], item: str = MAIN) -> Program:
    """The main of a file, which has run with these arguments, or a test of it.

    Raises UserFileError for a file that does not compile, UnknownName.
    """
    if item == MAIN:
        compiled(path, text)
        return Program(lambda: _as_script(path, text, argv))
    items = _items(path, text)
    if item not in items:
        raise UnknownName(f"test in {path}", item, items)

    def test() -> None:
        with as_main(path, (), ModuleType("__main__")):
            items[item].run()

    return Program(test)


def _as_script(path: str, text: bytes, argv: tuple[str, ...]) -> None:
    _load(path, text, "__main__", argv)
