"""Scenarios: a system under test with its workload, fault menu and reference, as one value.

Two ways to make one.

- `Scenario(name=..., host=..., reference=..., params=...)`: a host program that allocates, prepares and
  dispatches; it returns what is to be judged, `{label: [one tensor a rank]}`, and `reference(params,
  size)` returns the same form, computed with plain torch.
- `@scenario(reference=...)` on a rank program `program(rank, n: Annotated[int, Meta(ge=1, le=64)] = 4)`:
  the annotated parameters after `rank` become the params Struct, every rank is dispatched once, and the
  reference is called as `reference(size, **params)` and returns one expected result a rank.

`params` is a frozen msgspec Struct; the bounds in its Meta annotations give the Hypothesis strategy.
Mutants stand beside their twins in `systems/*/mutants/`; `@mutant` registers one.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from harness.errors import UsageError
from harness.host import World
from harness.plan import RANKS_MAX

Observed = Mapping[str, Sequence[Any]]

if TYPE_CHECKING:
    from harness.crash_states import Aftermath
    from harness.finding import Checker
    from harness.record import Run


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a scenario that has none."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A system with one planted bug: `replacement` stands in for one function of the twin.

    expects: the finding, as `checker/kind`. ranks: the smallest world that shows it.
    """

    name: str
    module: str
    attribute: str
    replacement: Callable[..., Any]
    expects: str
    ranks: int
    doc: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The twin's module with the bug in it."""
        *owners, name = self.attribute.split(".")
        owner: Any = sys.modules[self.module]
        for one in owners:
            owner = getattr(owner, one)
        twin = inspect.getattr_static(owner, name)  # a property, a static method as it stands
        setattr(owner, name, self.replacement)
        try:
            yield
        finally:
            setattr(owner, name, twin)


def mutant(
    *, of: Callable[..., Any], expects: str, ranks: int
) -> Callable[[Callable[..., Any]], Mutant]:
    """Make a Mutant of a function or method that has the same parameters as its twin `of`.

    The docstring says the bug, the finding expected and the smallest world that shows it.
    """

    def make(replacement: Callable[..., Any]) -> Mutant:
        doc = inspect.getdoc(replacement)
        if not doc:
            raise UsageError(f"mutant {replacement.__name__}: its docstring must say the bug")
        if list(inspect.signature(of).parameters) != list(inspect.signature(replacement).parameters):
            raise UsageError(
                f"mutant {replacement.__name__}: its parameters differ from {of.__name__}'s"
            )
        return Mutant(
            replacement.__name__, of.__module__, of.__qualname__, replacement, expects, ranks, doc
        )

    return make


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is driven and how it is judged.

    ranks: smallest and largest world. bug_faults: fault name -> the finding expected of it as
    `checker/kind`, or `equivalent: reason`. mutants: by name. device_ids: cards for a world size.
    tolerance: largest absolute difference from the reference that is right; 0 = bit-exact.
    unavailable: why it cannot run on this machine ("" if it can). subject: name and version of the system
    under test, where that is not this project's own; a hunt without a name leaves such scenarios out.
    reference: None: results are not compared; `checkers`, the scenario's own, judge what host returned
    (Run.observed), after the built-in ones.
    comes_to: what each rank of a finished run came to, as text, which no schedule may change: it is
    compared with that of the default run (checkers/torch_program.py).
    recovery: the host program of what comes after a crash, for plans with `crash`; it is given an
    Aftermath. What host (and recovery, for a crash of the recovery) returns then has its SimulatedDisk
    as `disk`; that disk's profile says what a crash may leave, its marks what has been promised.
    threads: each lane runs on an OS thread of its own (one at a time): for programs inside whose native
    code a greenlet must not switch.
    given: the params that only the user sets (the arguments of a script): hunts and the minimiser leave
    them as they are.
    ready: called with the params and the world size before each run, outside of it, for what takes a run
    of its own.
    usual_ranks: the worlds of a hunt that names none; by default all of `ranks`.
    caches: it is a program for cores with caches that are not coherent: hunts try the delivery switches
    lines and stale (plan.py) now and then.
    """

    name: str
    host: Callable[[World, Any], Any]
    reference: Callable[[Any, int], Observed] | None = None
    params: type[msgspec.Struct] = NoParams
    ranks: tuple[int, int] = (1, 8)
    bug_faults: Mapping[str, str] = field(default_factory=dict)
    mutants: Mapping[str, Mutant] = field(default_factory=dict)
    device_ids: Callable[[int], Sequence[int]] | None = None
    tolerance: float = 0.0
    checkers: tuple[Checker, ...] = ()
    unavailable: Callable[[], str] | None = None
    subject: Callable[[], str] | None = None
    recovery: Callable[[World, Any, Aftermath], Any] | None = None
    comes_to: Callable[[Run], list[str]] | None = None
    threads: bool = False
    given: tuple[str, ...] = ()
    ready: Callable[[Any, int], None] | None = None
    caches: bool = False
    usual_ranks: tuple[int, int] | None = None
    doc: str = ""
    digest: str = ""  # of the user's file it came from

    def __post_init__(self) -> None:
        low, high = self.ranks
        if not 1 <= low <= high <= RANKS_MAX:
            raise UsageError(
                f"scenario {self.name}: ranks {self.ranks} must lie within 1..{RANKS_MAX}"
            )

    @property
    def worlds(self) -> str:
        """Which world sizes it has, for messages."""
        low, high = self.ranks
        told = f"{self.name} runs with {low}..{high} ranks"
        if low < high or "argv" not in self.given:
            return told
        return f"{told}: those that the program names; a main takes others from its --args"

    @property
    def missing(self) -> str:
        """Why it cannot run here; "" if it can."""
        return self.unavailable() if self.unavailable is not None else ""

    @property
    def subject_version(self) -> str:
        """Name and version of the third-party system under test; "" if it is this project's own."""
        return self.subject() if self.subject is not None else ""


def params_of(program: Callable[..., Any], skipped: int = 1) -> type[msgspec.Struct]:
    """The params Struct that a rank program's annotated parameters describe, but for the first ones."""
    hints = typing.get_type_hints(program, include_extras=True)
    fields: list[Any] = []
    for parameter in list(inspect.signature(program).parameters.values())[skipped:]:
        if parameter.name not in hints:
            raise UsageError(
                f"scenario {program.__name__}: parameter {parameter.name!r} needs an annotation "
                "such as Annotated[int, Meta(ge=1, le=64)]"
            )
        annotation = hints[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            # msgspec refuses a list or dict as it stands: each plan gets one of its own.
            made = msgspec.field(default_factory=functools.partial(deepcopy, parameter.default))
            fields.append((parameter.name, annotation, made))
    return msgspec.defstruct(
        f"{program.__name__}_params", fields, frozen=True, forbid_unknown_fields=True, kw_only=True,
        module=program.__module__,
    )


def _refuse_other_than_functions(program: Callable[..., Any]) -> None:
    for test, what in (
        (inspect.isgeneratorfunction, "yields"),
        (inspect.iscoroutinefunction, "is async"),
        (inspect.isasyncgenfunction, "is async"),
    ):
        if test(program):
            raise UsageError(
                f"scenario {program.__name__}: it {what}; a rank program is an ordinary blocking "
                "function that returns its result"
            )


def scenario(
    *, reference: Callable[..., Sequence[Any]], ranks: tuple[int, int] = (2, 8),
    bug_faults: Mapping[str, str] | None = None, tolerance: float = 0.0, name: str | None = None,
    lanes: int = 1, caches: bool = False,
) -> Callable[[Callable[..., Any]], Scenario]:
    """A Scenario of a rank program; see the module docstring.

    lanes: workers a rank that run it; with several, a rank's result is the list of theirs. caches: as
    Scenario's.
    """

    def make(program: Callable[..., Any]) -> Scenario:
        _refuse_other_than_functions(program)
        params = params_of(program)
        names = params.__struct_fields__

        @functools.wraps(program)
        def bound(rank: Any, *values: Any) -> Any:
            return program(rank, **dict(zip(names, values, strict=True)))

        def host(world: World, given: Any) -> None:
            values = [getattr(given, name) for name in names]
            for index in range(world.size):
                world.dispatch(bound, *values, device=index, lanes=lanes)

        def by_label(given: Any, size: int) -> Observed:
            values = {name: getattr(given, name) for name in names}
            expected = list(reference(size, **values))
            if len(expected) != size:
                raise ValueError(f"{len(expected)} results for {size} ranks; give one a rank")
            return {"result": expected}

        return Scenario(
            name=name or program.__name__, host=host, reference=by_label, params=params,
            ranks=ranks, bug_faults=dict(bug_faults or {}), tolerance=tolerance, caches=caches,
            doc=inspect.getdoc(program) or "",
        )

    return make


def values(rank: int, count: int, round: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`count` test values, unique in (rank, element, round) and exact in float32 sums.

    Small integers, so that sums over up to 64 ranks are exact: value = 1 + rank + 64 * (element +
    1009 * round) modulo 65521 in float32 and int32; modulo 251 in narrower types.
    """
    index = torch.arange(count, dtype=torch.int64) + 1009 * round
    modulus = 65521 if dtype in (torch.float32, torch.float64, torch.int32, torch.int64) else 251
    return ((1 + rank + RANKS_MAX * index) % modulus).to(dtype)
