"""pld programs as scenarios: what `rankfault run` and `rankfault hunt` make of a file.

    ring.py::main               the first host call of the file's main, on the devices that the main names
    ring.py::main#2             its second one
    ring.py::ring               the host function `ring` with the arguments that the main gives it first:
                                also two calls in a row, on windows that stay
    test_x.py::test_y[2-fp32]   the host calls of a test (a file called test_*.py or *_test.py)

Where a dynamic extent of the host function is the number of devices, a call is also made on others than
the main names, and a host function that is named is given other sizes for its further dynamic extents
(other_sizes.py). No main has seen such a call: its outputs are compared with those of its default run.

A plan's `argv` are the main's arguments. Nothing of the file runs in a plan but its host function and
kernels: the main (or test) has run once (programs.py), and is asked again when outputs differ. A main
that a rule of PyPTO's stops between its calls is a scenario as well, which shows just that.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec

from harness.checkers.golden import Golden, Seen
from harness.checkers.pld_rules import PldRules
from harness.errors import PlanError, UnknownName, UsageError, UserFileError, one_line
from harness.frontends.pypto.calls import CallFailed, HostCall, Live, Snapshot, refusal
from harness.frontends.pypto.other_sizes import Extents
from harness.frontends.pypto.programs import MAIN, PROGRAMS_MAX, Program, item_names, program_of
from harness.frontends.pypto.rules import macros_in
from harness.host import World
from harness.plan import RANKS_MAX
from harness.record import place
from harness.scenario import Scenario

Sizes = tuple[tuple[str, int], ...]  # dynamic extents by name


def is_test_file(path: str) -> bool:
    """Whether pytest would collect it."""
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py")


def params_of(
    argv: tuple[str, ...], *, rounds: bool, extents: Extents | None
) -> type[msgspec.Struct]:
    """The params of a call: the main's arguments; how often a host function is called in a row, and the
    sizes that it is given. extents: None: whatever a plan says."""
    fields: list[Any] = [("argv", tuple[str, ...], argv)]
    if rounds:
        fields.append(("rounds", Annotated[int, msgspec.Meta(ge=1, le=2)], 1))
        if extents is None:
            fields.append(("sizes", Sizes, ()))
        elif extents.sizes:
            drawn = [
                GenericAlias(tuple, (Literal[name], Literal[extents.choices(name)]))
                for name in extents.sizes
            ]
            fields.append(("sizes", GenericAlias(tuple, tuple(drawn)), tuple(extents.sizes.items())))
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
    return _scenario(path, text, tuple(argv), wanted, call_of(path, text, tuple(argv), wanted))


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
    return [_scenario(path, text, argv, name, call_of(path, text, argv, name)) for name in names]


def cannot_run(name: str, why: str) -> Scenario:
    """A scenario that says why it cannot run."""
    return Scenario(name=name, host=_nothing, unavailable=lambda: why)


def _idle(_rank: Any) -> None:
    """What devices do in a call that its program refuses."""


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

    @functools.cached_property
    def extents(self) -> Extents | None:
        """Its dynamic extents."""
        return None if self.snapshot is None else Extents(self.snapshot.call)

    def on(self, ranks: int, sizes: Sizes) -> Snapshot | None:
        """The call on so many devices with these sizes; None where that is the main's own.

        Raises PlanError.
        """
        if self.snapshot is None or self.extents is None:
            return None
        call, extents = self.snapshot.call, self.extents
        unknown = [name for name, _ in sizes if name not in extents.sizes]
        if unknown:
            raise PlanError(
                f"plan: $.params.sizes: {unknown[0]!r} is no free dynamic extent of "
                f"{call.function.name}; allowed {', '.join(extents.sizes) or 'none'}"
            )
        other = {name: size for name, size in sizes if size != extents.sizes[name]}
        if ranks == call.size and not other:
            return None
        if ranks != call.size and not extents.world:
            raise PlanError(
                f"plan: $.ranks: {ranks}; {call.function.name} runs on {call.size} devices with the "
                "arguments of its main, and no dynamic extent of its tensors is their number"
            )
        live = Live()
        with contextlib.suppress(CallFailed):
            live.perform(extents.made(call, ranks, other))
        return live.snapshots[0]


@functools.lru_cache(maxsize=PROGRAMS_MAX)
def call_of(path: str, text: bytes, argv: tuple[str, ...], wanted: str) -> Call:
    """The call that a scenario's name means."""
    return Call(path, text, argv, wanted)


@functools.lru_cache(maxsize=PROGRAMS_MAX)
def resized(
    path: str, text: bytes, argv: tuple[str, ...], wanted: str, ranks: int, sizes: Sizes
) -> Snapshot | None:
    """See Call.on; it runs once. Raises PlanError."""
    return call_of(path, text, argv, wanted).on(ranks, sizes)


def _scenario(
    path: str, text: bytes, argv: tuple[str, ...], wanted: str, found: Call | None
) -> Scenario:
    """found: None where the plan brings the arguments."""

    def other(params: Any, ranks: int) -> Snapshot | None:
        return resized(path, text, params.argv, wanted, ranks, getattr(params, "sizes", ()))

    def ready(params: Any, ranks: int) -> None:
        other(params, ranks)

    def host(world: World, params: Any) -> Any:
        found = call_of(path, text, params.argv, wanted)
        if found.snapshot is None:
            assert found.program.refused is not None
            raise found.program.refused.error
        snapshot = other(params, world.size)
        if snapshot is not None and (why := refusal(snapshot.outcome)):
            seen = Seen()
            seen.refused = why
            for device in range(world.size):
                world.dispatch(_idle, device=device)
            return seen
        call = (snapshot or found.snapshot).call.copied()
        seen = (
            observed(call, found.snapshot, found.program, found.number) if snapshot is None
            else observed(call, snapshot, None, 0)
        )
        call.record(world, rounds=getattr(params, "rounds", 1))
        return seen

    named = is_test_file(path)  # whose name says on how many devices it runs
    repeats = not named and wanted.partition("#")[0] != MAIN
    size = None if found is None else found.size
    extents = None if found is None else found.extents
    free = size is None or (extents is not None and bool(extents.world) and not named)
    usual = (1, 1) if size is None else (size, size)
    return Scenario(
        name=f"{PurePosixPath(path)}::{wanted}", host=host,
        params=params_of(argv, rounds=repeats, extents=extents),
        ranks=(1, RANKS_MAX) if free else usual, usual_ranks=usual if free else None,
        given=("argv", "sizes") if extents is None else ("argv",), ready=ready,
        checkers=(PldRules(_macros(path, text)), Golden()), doc=f"{path}, a pld program",
        digest=hashlib.sha256(text).hexdigest()[:16],
    )


def _macros(path: str, text: bytes) -> list[tuple[str, str]]:
    """Where the file sets compile-time macros in the environment."""
    return [(f"{path}:{line}", macro) for line, macro in macros_in(text.decode(errors="replace"))]


def observed(call: HostCall, snapshot: Snapshot, program: Program | None, number: int) -> Seen:
    """What a run of `call` is judged by. program: None where no main has made it."""
    seen = Seen(call.observed())
    seen.program, seen.number = program, number
    seen.outputs = [call.args[index] for index in call.written]
    if not snapshot.outcome.findings:
        seen.usual = snapshot.outputs
        seen.expected = snapshot.expected()
    return seen
