"""pld programs as scenarios: what `rankfault run` and `rankfault hunt` make of a file.

    ring.py::main       the first host call of the file's main, on the devices that the main names
    ring.py::main#2     its second one
    ring.py::ring       the host function `ring`, with the arguments that the main gives it first: two calls in a row
                        on windows that stay, and other numbers of devices where every shape allows it

A plan's `argv` are the main's arguments. Nothing of the file runs in a plan but its host function and
kernels: the main has run once (programs.py), and is asked again when outputs differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec

from harness.checkers.golden import Golden, Seen
from harness.checkers.pld_rules import PldRules
from harness.errors import PldRuleError, PlanError, UnknownName, UserFileError, one_line
from harness.frontends.pypto.calls import HostCall, Snapshot
from harness.frontends.pypto.programs import Program, program_of
from harness.host import World
from harness.plan import RANKS_MAX
from harness.record import place
from harness.scenario import Scenario

MAIN = "main"


def params_of(argv: tuple[str, ...], *, rounds: bool) -> type[msgspec.Struct]:
    """The params of a call: the main's arguments, and how often the call is made in a row."""
    fields: list[Any] = [("argv", tuple[str, ...], argv)]
    if rounds:
        fields.append(("rounds", Annotated[int, msgspec.Meta(ge=1, le=2)], 1))
    return msgspec.defstruct("PldParams", fields, frozen=True, forbid_unknown_fields=True)


def scenarios_in(path: str, text: bytes, argv: Sequence[str] = ()) -> list[Scenario]:
    """One scenario for each host call of the file's main.

    Raises UserFileError where the main makes none.
    """
    given = tuple(argv)
    program = program_of(path, text, given)
    if not program.calls:
        if program.raised is not None and isinstance(program.raised.error, PldRuleError):
            return [_refused(path, text, given)]
        raise UserFileError(f"{path}: {_why_none(program)}")
    return [
        _scenario(path, text, given, _name(number), snapshot.call.size)
        for number, snapshot in enumerate(program.calls)
    ]


def _refused(path: str, text: bytes, argv: tuple[str, ...]) -> Scenario:
    """A main that a rule stops before any call runs: its run is that error."""

    def host(_world: World, params: Any) -> Any:
        raised = program_of(path, text, params.argv).raised
        if raised is not None:
            raise raised.error

    return Scenario(
        name=f"{PurePosixPath(path)}::{MAIN}", host=host, params=params_of(argv, rounds=False),
        ranks=(1, RANKS_MAX), usual_ranks=(1, 1), given=("argv",), checkers=(PldRules(),), doc=f"{path}, a pld program",
        digest=hashlib.sha256(text).hexdigest()[:16],
    )


def scenario_named(path: str, text: bytes, wanted: str, argv: Sequence[str] | None = None) -> Scenario:
    """The scenario `path::wanted`. argv: None: they come with a plan, and nothing runs before."""
    if argv is not None:
        size = _snapshot(program_of(path, text, tuple(argv)), path, wanted)[1].call.size
        return _scenario(path, text, tuple(argv), wanted, size)
    return _scenario(path, text, (), wanted, None)


def _why_none(program: Program) -> str:
    raised = program.raised
    if raised is None:
        return "its main calls no host function"
    at = f" at {place(raised.code, raised.lasti)}" if raised.code is not None else ""
    return f"its main failed{at} before any host call: {one_line(raised.error)}"


def _name(number: int) -> str:
    return MAIN if number == 0 else f"{MAIN}#{number + 1}"


def _number(wanted: str) -> int | None:
    """Which call of the main a name means; None for a function's name."""
    word, _, count = wanted.partition("#")
    if word != MAIN or (count and not count.isdecimal()):
        return None
    return int(count) - 1 if count else 0


def _snapshot(program: Program, path: str, wanted: str) -> tuple[int, Snapshot]:
    """A call by the name that a scenario has. Raises UnknownName, UserFileError."""
    if not program.calls:
        raise UserFileError(f"{path}: {_why_none(program)}")
    number = _number(wanted)
    if number is not None and 0 <= number < len(program.calls):
        return number, program.calls[number]
    for index, snapshot in enumerate(program.calls):
        if snapshot.call.function.name == wanted:
            return index, snapshot
    names = [_name(n) for n in range(len(program.calls))]
    raise UnknownName(
        f"host call in {path}", wanted, [*names, *{one.call.function.name for one in program.calls}]
    )


def _scenario(
    path: str, text: bytes, argv: tuple[str, ...], wanted: str, size: int | None
) -> Scenario:
    repeated = _number(wanted) is None

    def ready(params: Any, ranks: int) -> None:
        _, snapshot = _snapshot(program_of(path, text, params.argv), path, wanted)
        if snapshot.call.size != ranks:
            raise PlanError(
                f"plan: $.ranks: {ranks}; {path}::{wanted} runs on {snapshot.call.size} devices with "
                f"the arguments {list(params.argv)}"
            )

    def host(world: World, params: Any) -> Any:
        program = program_of(path, text, params.argv)
        number, snapshot = _snapshot(program, path, wanted)
        call = snapshot.call.copied()
        seen = observed(call, snapshot, program, number)
        call.record(world, rounds=getattr(params, "rounds", 1))
        return seen

    return Scenario(
        name=f"{PurePosixPath(path)}::{wanted}", host=host, params=params_of(argv, rounds=repeated),
        ranks=(size, size) if size is not None else (1, RANKS_MAX), given=("argv",), ready=ready,
        checkers=(PldRules(), Golden()), doc=f"{path}, a pld program",
        digest=hashlib.sha256(text).hexdigest()[:16],
    )


def observed(call: HostCall, snapshot: Snapshot, program: Program | None, number: int) -> Seen:
    """What a run of `call` is judged by."""
    seen = Seen(call.observed())
    seen.program, seen.number = program, number
    seen.outputs = [call.args[index] for index in call.written]
    if not snapshot.outcome.findings:
        seen.usual = snapshot.outputs
        seen.expected = snapshot.expected()
    return seen
