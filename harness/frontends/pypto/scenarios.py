"""pld programs as scenarios: what `rankfault run` and `rankfault hunt` make of a file.

    ring.py::main               the first host call of the file's main, on the devices that the main names
    ring.py::main#2             its second one
    ring.py::ring               the host function `ring` with the arguments that the main gives it first:
                                also two calls in a row, on windows that stay
    test_x.py::test_y[2-fp32]   the host calls of a test (a file called test_*.py or *_test.py)

A plan's `argv` are the main's arguments. Nothing of the file runs in a plan but its host function and
kernels: the main (or test) has run once (programs.py), and is asked again when outputs differ. A main
that a rule of PyPTO's stops between its calls is a scenario as well, which shows just that.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec

from harness.checkers.golden import Golden, Seen
from harness.checkers.pld_rules import PldRules
from harness.errors import PlanError, UnknownName, UsageError, UserFileError, one_line
from harness.frontends.pypto.calls import HostCall, Snapshot
from harness.frontends.pypto.programs import MAIN, PROGRAMS_MAX, Program, item_names, program_of
from harness.frontends.pypto.rules import macros_in
from harness.host import World
from harness.plan import RANKS_MAX
from harness.record import place
from harness.scenario import Scenario


def is_test_file(path: str) -> bool:
    """Whether pytest would collect it."""
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py")


def params_of(argv: tuple[str, ...], *, rounds: bool) -> type[msgspec.Struct]:
    """The params of a call: the main's arguments, and how often the call is made in a row."""
    fields: list[Any] = [("argv", tuple[str, ...], argv)]
    if rounds:
        fields.append(("rounds", Annotated[int, msgspec.Meta(ge=1, le=2)], 1))
    return msgspec.defstruct("PldParams", fields, frozen=True, forbid_unknown_fields=True)


def scenarios_in(path: str, text: bytes, argv: Sequence[str] = ()) -> list[Scenario]:
    """One scenario for each host call of the file's main, or of each of its tests.

    A test that makes none is one that cannot run here. Raises UserFileError, UsageError.
    """
    given = tuple(argv)
    if not is_test_file(path):
        return _calls_of(path, text, given, MAIN)
    if given:
        raise UsageError(f"{path}: only programs with a main take arguments; this is a test file")
    found = [one for item in item_names(path, text) for one in _calls_of(path, text, (), item)]
    if not found:
        raise UserFileError(f"{path}: no test in it")
    return found


def scenario_named(path: str, text: bytes, wanted: str, argv: Sequence[str] | None = None) -> Scenario:
    """The scenario `path::wanted`. argv: None: they come with a plan, and nothing runs before.

    Raises UserFileError, UnknownName.
    """
    if argv is None:
        return _scenario(path, text, (), wanted, None)
    return _scenario(path, text, tuple(argv), wanted, call_of(path, text, tuple(argv), wanted).size)


def scenarios_named(path: str, text: bytes, wanted: str, argv: Sequence[str]) -> list[Scenario]:
    """What `path::wanted` may mean to a hunt: one scenario, or all calls of a main or a test."""
    if wanted == MAIN or (is_test_file(path) and wanted in item_names(path, text)):
        return _calls_of(path, text, tuple(argv), wanted)
    if is_test_file(path):  # a class, or a function with parameters
        found = [
            one for item in item_names(path, text) if item.startswith((f"{wanted}::", f"{wanted}["))
            for one in _calls_of(path, text, (), item)
        ]
        if found:
            return found
    return [scenario_named(path, text, wanted, argv)]


def _calls_of(path: str, text: bytes, argv: tuple[str, ...], item: str) -> list[Scenario]:
    program = program_of(path, text, argv, item)
    count = len(program.calls) + (program.refused is not None)
    if not count:
        why = _why_none(program)
        if item == MAIN:
            raise UserFileError(f"{path}: {why}")
        return [cannot_run(f"{PurePosixPath(path)}::{item}", why)]
    names = [item if number == 0 else f"{item}#{number + 1}" for number in range(count)]
    return [_scenario(path, text, argv, name, call_of(path, text, argv, name).size) for name in names]


def cannot_run(name: str, why: str) -> Scenario:
    """A scenario that says why it cannot run."""
    return Scenario(name=name, host=_nothing, unavailable=lambda: why)


def _nothing(_world: World, _params: Any) -> None:
    """The host of a scenario that cannot run."""


def _why_none(program: Program) -> str:
    raised = program.raised
    if program.skipped:
        return f"skipped: {program.skipped}"
    if raised is None:
        return "it calls no host function"
    at = f" at {place(raised.code, raised.lasti)}" if raised.code is not None else ""
    return f"it failed{at} before any host call: {one_line(raised.error)}"


class Call:
    """One call of a program by the name that its scenario has.

    snapshot: None where a rule stopped the program instead. Raises UnknownName, UserFileError.
    """

    def __init__(self, path: str, text: bytes, argv: tuple[str, ...], wanted: str) -> None:
        found = re.fullmatch(r"(.*?)(?:#([1-9][0-9]*))?", wanted, re.DOTALL)
        assert found is not None
        item, count = found[1], int(found[2] or 1)
        of_main = not is_test_file(path)
        self.program = program_of(path, text, argv, MAIN if of_main else item)
        calls = self.program.calls
        self.snapshot: Snapshot | None = None
        self.number = count - 1
        self.repeated = False
        if of_main and item != MAIN:
            self.repeated = True
            self.number = next(
                (n for n, one in enumerate(calls) if one.call.function.name == item), len(calls)
            )
        if self.number < len(calls):
            self.snapshot = calls[self.number]
        elif self.program.refused is None or self.number > len(calls) or self.repeated:
            if not calls:
                raise UserFileError(f"{path}: {_why_none(self.program)}")
            first = MAIN if of_main else item
            names = [first, *(f"{first}#{n + 1}" for n in range(1, len(calls)))]
            raise UnknownName(
                f"host call in {path}", wanted, [*names, *(one.call.function.name for one in calls)]
            )

    @property
    def size(self) -> int | None:
        """How many devices it runs on; None where it does not come to that."""
        return None if self.snapshot is None else self.snapshot.call.size


@functools.lru_cache(maxsize=PROGRAMS_MAX)
def call_of(path: str, text: bytes, argv: tuple[str, ...], wanted: str) -> Call:
    """The call that a scenario's name means."""
    return Call(path, text, argv, wanted)


def _scenario(
    path: str, text: bytes, argv: tuple[str, ...], wanted: str, size: int | None
) -> Scenario:
    def ready(params: Any, ranks: int) -> None:
        due = call_of(path, text, params.argv, wanted).size
        if due is not None and due != ranks:
            raise PlanError(
                f"plan: $.ranks: {ranks}; {path}::{wanted} runs on {due} devices with the arguments "
                f"{list(params.argv)}"
            )

    def host(world: World, params: Any) -> Any:
        found = call_of(path, text, params.argv, wanted)
        if found.snapshot is None:
            assert found.program.refused is not None
            raise found.program.refused.error
        call = found.snapshot.call.copied()
        seen = observed(call, found.snapshot, found.program, found.number)
        call.record(world, rounds=getattr(params, "rounds", 1))
        return seen

    repeats = not is_test_file(path) and wanted.partition("#")[0] != MAIN
    return Scenario(
        name=f"{PurePosixPath(path)}::{wanted}", host=host, params=params_of(argv, rounds=repeats),
        ranks=(size, size) if size is not None else (1, RANKS_MAX),
        usual_ranks=(1, 1) if size is None else None, given=("argv",), ready=ready,
        checkers=(PldRules(_macros(path, text)), Golden()), doc=f"{path}, a pld program",
        digest=hashlib.sha256(text).hexdigest()[:16],
    )


def _macros(path: str, text: bytes) -> list[tuple[str, str]]:
    """Where the file sets compile-time macros in the environment."""
    return [(f"{path}:{line}", macro) for line, macro in macros_in(text.decode(errors="replace"))]


def observed(call: HostCall, snapshot: Snapshot, program: Program, number: int) -> Seen:
    """What a run of `call` is judged by."""
    seen = Seen(call.observed())
    seen.program, seen.number = program, number
    seen.outputs = [call.args[index] for index in call.written]
    if not snapshot.outcome.findings:
        seen.usual = snapshot.outputs
        seen.expected = snapshot.expected()
    return seen
