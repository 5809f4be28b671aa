"""One call of a compiled host function, as a value, and who performs it.

A program's own main goes on as ordinary Python around its host calls: it makes tensors, calls, and
compares. Who performs a call is decided by who runs the main:

`Live`         the usual one: a run in the default schedule; its outputs are in the caller's tensors
               afterwards, and what a checker finds is raised. It keeps a `Snapshot` of each call,
               which a hunt repeats.
`Substituted`  no run: the outputs are given. So the program's golden check judges those of any plan.

A main makes its calls one after the other, each as a run of its own. Not modelled: a host that goes on
while a submitted call is running (`submit` waits).
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from harness.errors import PldRuleError, RankfaultError, one_line
from harness.fabric.frames import is_library, user_frame
from harness.finding import Outcome
from harness.frontends.pypto.annotations import bound
from harness.frontends.pypto.dfx import write_dfx
from harness.frontends.pypto.functions import Function, bindings, fitted
from harness.frontends.pypto.recording import Recording
from harness.frontends.pypto.rules import broken
from harness.frontends.pypto.running import record
from harness.frontends.pypto.values import HostTensor
from harness.host import World
from harness.plan import Plan
from harness.record import place
from harness.scenario import NoParams, Scenario


@dataclass(slots=True)
class HostCall:
    """One call. args: tensors and scalars, by position. device_ids: the cards.

    kept: what retained windows hold, by number and device; None: windows begin as zeros. overrides: of
    sub-workers. diagnostics: the folder that dfx_outputs is due in. retains: whether it is wanted what
    its windows hold at the end.
    """

    function: Function
    owner: Any
    args: list[Any]
    device_ids: tuple[int, ...]
    kept: list[list[bytes]] | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    diagnostics: Path | None = None
    retains: bool = False

    @property
    def size(self) -> int:
        """How many devices."""
        return len(self.device_ids)

    @property
    def written(self) -> list[int]:
        """Positions of the tensors that it may write."""
        return [i for i in self.function.written if isinstance(self.args[i], torch.Tensor)]

    def outputs(self) -> list[torch.Tensor]:
        """Copies of the tensors that it may write, as they are now."""
        return [self.args[index].clone() for index in self.written]

    def copied(self) -> HostCall:
        """The same call on copies of its tensors; one tensor given twice stays one."""
        copies: dict[int, torch.Tensor] = {}
        args = []
        for value in self.args:
            if isinstance(value, torch.Tensor):
                if id(value) not in copies:
                    copies[id(value)] = value.detach().clone(memory_format=torch.contiguous_format)
                value = copies[id(value)]
            args.append(value)
        return HostCall(self.function, self.owner, args, self.device_ids, self.kept, self.overrides)

    def record(self, world: World, rounds: int = 1) -> Recording:
        """Leave the call's dispatches with the world.

        rounds: how often it is made, each time behind the one before on every device, on the same
        windows, which nobody zeroes; its tensors are those of the last.
        """
        return record(
            world, [
                (one._body, one.args) for one in (*(self.copied() for _ in range(rounds - 1)), self)
            ]
        )

    def _body(self, recording: Recording, *args: Any) -> None:
        recording.overrides = self.overrides
        recording.kept = self.kept
        held: dict[int, HostTensor] = {}
        values: list[Any] = []
        for name, value in zip(self.function.names, args, strict=True):
            if isinstance(value, torch.Tensor):
                if id(value) not in held:
                    held[id(value)] = recording.tensor(value, name)
                value = held[id(value)]
            values.append(value)
        function = self.function
        if function.kind == "chip":  # a program for one chip
            recording.dispatch(
                function.name, lambda *given: function.__get__(self.owner)(*given), values, 0,
                function=function,
            )
            return
        try:
            symbols = fitted(function, values, recording.size, device=False)
        except PldRuleError as error:
            error.at = (function.body.__code__, 0)
            raise
        with bound(symbols):
            function.body(self.owner, *values) if function.takes_self else function.body(*values)

    def observed(self) -> dict[str, list[Any]]:
        """What is judged: each written tensor by rank, if its first extent is the world size."""
        found: dict[str, list[Any]] = {}
        for index in self.written:
            found[self.function.names[index]] = by_rank(self.args[index], self.size)
        return found


def by_rank(tensor: torch.Tensor, size: int) -> list[Any]:
    """A tensor as one value a rank: its rows, or all of it for rank 0."""
    if tensor.dim() > 1 and tensor.shape[0] == size:
        return list(tensor)
    return [tensor, *[None] * (size - 1)]


@dataclass(slots=True)
class Snapshot:
    """A call that a main has made: its arguments as they were before, its outputs, and how it went."""

    call: HostCall
    outputs: list[torch.Tensor]
    outcome: Outcome

    def expected(self) -> dict[str, list[Any]]:
        """The outputs by name and rank."""
        names, size = self.call.function.names, self.call.size
        return {
            names[index]: by_rank(tensor, size)
            for index, tensor in zip(self.call.written, self.outputs, strict=True)
        }


class CallFailed(RankfaultError):
    """A host call whose run has a finding; raised in the program that called."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.findings[0].message)
        self.outcome = outcome


class Performer(Protocol):
    """Who performs host calls."""

    def perform(self, call: HostCall) -> list[list[bytes]]:
        """Perform it; returns what its windows hold at the end, by number and device."""
        ...


def scenario_of(call: HostCall, name: str = "") -> Scenario:
    """A scenario that makes the call once, on its own tensors."""
    from harness.checkers.pld_rules import PldRules

    def host(world: World, _params: Any) -> Any:
        call.record(world)
        return call.observed()

    return Scenario(
        name=name or call.function.name, host=host, ranks=(call.size, call.size),
        device_ids=lambda _size: call.device_ids, checkers=(PldRules(),),
    )


class Live:
    """Runs each call in the default schedule. snapshots: the calls so far."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def perform(self, call: HostCall) -> list[list[bytes]]:
        """See Performer. Raises CallFailed."""
        from harness.run import run

        before = call.copied()
        dense = call.copied() if _strided(call) else call
        scenario = scenario_of(dense)
        outcome = run(Plan(scenario=scenario.name, params=NoParams(), ranks=call.size), scenario=scenario)
        if dense is not call:
            for index in call.written:
                call.args[index].copy_(dense.args[index])
        self.snapshots.append(Snapshot(before, call.outputs(), outcome))
        if call.diagnostics is not None:
            write_dfx(outcome.run, call.diagnostics / "dfx_outputs")
        if outcome.findings:
            raise CallFailed(outcome)
        return windows_after(outcome, call.size) if call.retains else []


def refusal(outcome: Outcome) -> str:
    """How a program's own checks refused the arguments: an assertion or a ValueError in its host code, or
    a `pl.static_assert`; empty where they did not."""
    failures = outcome.run.failures
    if not failures:
        return ""
    error, (code, lasti) = failures[0].error, user_frame(failures[0].error)
    if isinstance(error, PldRuleError):
        if error.rule != "static_assert":
            return ""
        code, lasti = failures[0].code or code, failures[0].lasti
    elif failures[0].lane >= 0 or not isinstance(error, AssertionError | ValueError) or not _own(error):
        return ""
    return f"{place(code, lasti)}: {one_line(error)}"


def _own(error: BaseException) -> bool:
    """Whether the user's code raised it, no library that it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not is_library(frames[-1].filename)


def windows_after(outcome: Outcome, size: int) -> list[list[bytes]]:
    """What the windows of a run hold at its end, by number and rank."""
    return [
        [known.final(rank) or b"" for rank in range(size)]
        for known in outcome.run.names if known.kind == "window"
    ]


def _strided(call: HostCall) -> bool:
    return any(isinstance(one, torch.Tensor) and not one.is_contiguous() for one in call.args)


class Substituted:
    """Gives each call the outputs that it is told to have."""

    def __init__(self, outputs: Sequence[Sequence[torch.Tensor]]) -> None:
        self._outputs = outputs
        self._calls = 0

    def perform(self, call: HostCall) -> list[list[bytes]]:
        """See Performer."""
        if self._calls < len(self._outputs):
            for index, value in zip(call.written, self._outputs[self._calls], strict=True):
                call.args[index].copy_(value)
        self._calls += 1
        return []


_performers: list[Performer] = []


@contextlib.contextmanager
def performed_by(performer: Performer) -> Iterator[None]:
    """Host calls go to `performer`."""
    _performers.append(performer)
    try:
        yield
    finally:
        _performers.pop()


def perform(call: HostCall) -> list[list[bytes]]:
    """Perform a host call; see Performer. Raises CallFailed."""
    return (_performers[-1] if _performers else Live()).perform(call)


def completed(
    function: Function, args: Sequence[Any], named: dict[str, Any]
) -> tuple[list[Any], list[int]]:
    """A host call's arguments by position, Out tensors that were left out allocated, and where those are.

    Raises TypeError, or PldRuleError where the extents of one cannot be told.
    """
    ins = [
        index for index, one in enumerate(function.annotations) if one is None or one.direction != "out"
    ]
    if named or len(args) == len(function.names) or len(args) != len(ins):
        return function.ordered(tuple(args), named), []
    values: list[Any] = [None] * len(function.names)
    for index, value in zip(ins, args, strict=True):
        values[index] = value
    symbols: dict[str, int] = {}
    for index in ins:
        declared, value = function.annotations[index], values[index]
        if declared is not None and declared.shape is not None and isinstance(value, torch.Tensor):
            symbols |= bindings(declared.shape, tuple(value.shape))
    outs = [index for index in range(len(values)) if index not in ins]
    with bound(symbols):
        for index in outs:
            declared = function.annotations[index]
            if declared is None or declared.shape is None or declared.dtype is None:
                raise broken(
                    "wrong_operand",
                    f"{function.name}: {function.names[index]} was left out, its shape is not declared",
                )
            values[index] = torch.zeros(tuple(map(int, declared.shape)), dtype=declared.dtype.torch)
    return values, outs
