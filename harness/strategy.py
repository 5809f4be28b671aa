"""Hypothesis strategies for plans, and the decorator that tests use.

`plans(scenario)` draws ranks, parameters, environment faults and a sparse schedule. The bounds of
schedule positions come from the default run of the same drawn program, so drawing runs the program
once. Simpler means fewer and earlier: `[]` is the default run, Hold comes before Preempt, small
numbers before large ones.

`@property(scenario)` makes a test of a function that takes an Outcome. Hypothesis generates; a failing
plan goes through this project's own minimiser (minimise.py), not through Hypothesis's shrinker, and
the failure's text is the report.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import inspect as types

from harness import registry
from harness.errors import UsageError
from harness.finding import Outcome
from harness.plan import Deviation, Fault, Hold, Plan, Preempt
from harness.run import execute_plan, run
from harness.scenario import Scenario

DEVIATIONS_MAX = 4
INT_SPAN = 64
LENGTH_SPAN = 4
COUNTING = 1 << 30  # an `nth` that never comes: such a fault only counts its operations


def struct_values(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Values of a msgspec Struct within the bounds of its annotations."""
    info = types.type_info(struct)
    return _values(info, struct.__name__)


def _values(info: types.Type, where: str) -> st.SearchStrategy[Any]:  # noqa: PLR0911
    if isinstance(info, types.IntType):
        low = info.ge if info.ge is not None else info.gt + 1 if info.gt is not None else None
        high = info.le if info.le is not None else info.lt - 1 if info.lt is not None else None
        if low is None and high is None:
            low, high = 0, INT_SPAN
        elif low is None:
            assert high is not None
            low = high - INT_SPAN
        elif high is None:
            high = low + INT_SPAN
        return st.integers(low, high)
    if isinstance(info, types.FloatType):
        return st.floats(info.ge or 0.0, info.le if info.le is not None else 1.0)
    if isinstance(info, types.BoolType):
        return st.booleans()
    if isinstance(info, types.LiteralType):
        return st.sampled_from(list(info.values))
    if isinstance(info, types.EnumType):
        return st.sampled_from(list(info.cls))
    if isinstance(info, types.StrType):
        return st.text(
            st.characters(codec="ascii", categories=("L", "N")), min_size=info.min_length or 0,
            max_size=info.max_length if info.max_length is not None else 8,
        )
    if isinstance(info, types.NoneType):
        return st.none()
    if isinstance(info, types.UnionType):
        return st.one_of(*(_values(member, where) for member in info.types))
    if isinstance(info, types.VarTupleType | types.ListType):
        low = info.min_length or 0
        high = info.max_length if info.max_length is not None else low + LENGTH_SPAN
        made = st.lists(_values(info.item_type, where), min_size=low, max_size=high)
        return made if isinstance(info, types.ListType) else made.map(tuple)
    if isinstance(info, types.TupleType):
        return st.tuples(*(_values(member, where) for member in info.item_types))
    if isinstance(info, types.StructType):
        fields = {f.name: _values(f.type, f"{where}.{f.name}") for f in info.fields}
        return st.builds(info.cls, **fields)
    if isinstance(info, types.Metadata):
        return _values(info.type, where)
    raise UsageError(
        f"{where}: no strategy for {type(info).__name__}; parameters are ints, floats, bools, strings, "
        "literals, enums, tuples, lists and Structs of these"
    )


def fault_counts(plan: Plan, scenario: Scenario, fault: type[Fault]) -> list[int]:
    """How many operations of each rank `fault` could hit in the default run of `plan`."""
    probes = tuple(fault(rank=rank, nth=COUNTING) for rank in range(plan.ranks))
    probing = msgspec.structs.replace(plan, faults=probes, schedule=())
    return execute_plan(probing, scenario).seen or [0] * plan.ranks


def fault_values(
    plan: Plan, scenario: Scenario, fault: type[Fault]
) -> st.SearchStrategy[Fault] | None:
    """Faults of one kind that can hit something in `plan`; None when nothing matches."""
    counts = fault_counts(plan, scenario, fault)
    places = [(rank, nth) for rank, count in enumerate(counts) for nth in range(count)]
    if not places:
        return None
    extra = {
        f.name: _values(f.type, f"{fault.__name__}.{f.name}")
        for f in _fields(fault) if f.name not in ("rank", "nth")
    }
    return st.tuples(st.sampled_from(places), st.fixed_dictionaries(extra)).map(
        lambda drawn: fault(rank=drawn[0][0], nth=drawn[0][1], **drawn[1])
    )


def _fields(struct: type[msgspec.Struct]) -> Sequence[types.Field]:
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return info.fields


def schedules(operations: int, points: int, events: int) -> st.SearchStrategy[tuple[Deviation, ...]]:
    """Sparse schedules for a run with so many one-sided operations, contested points and events."""
    kinds: list[st.SearchStrategy[Deviation]] = []
    if operations:
        kinds.append(
            st.builds(Hold, op=st.integers(0, operations - 1), until=st.integers(0, events))
        )
    if points:
        kinds.append(
            st.builds(Preempt, at=st.integers(0, points - 1), to=st.integers(0, 7))
        )
    if not kinds:
        return st.just(())
    return st.lists(
        st.one_of(*kinds), max_size=DEVIATIONS_MAX,
        unique_by=lambda d: (type(d), d.op if isinstance(d, Hold) else d.at),
    ).map(tuple)


def ranks_of(scenario: Scenario, ranks: tuple[int, int] | None) -> tuple[int, int]:
    """The scenario's world sizes, narrowed to `ranks`. Raises UsageError when nothing is left."""
    low, high = scenario.ranks
    if ranks is None:
        return low, high
    narrowed = max(low, ranks[0]), min(high, ranks[1])
    if narrowed[0] > narrowed[1]:
        raise UsageError(
            f"ranks {ranks[0]}..{ranks[1]}: {scenario.name} runs with {low}..{high} ranks"
        )
    return narrowed


def environment_faults() -> dict[str, type[Fault]]:
    """What the world does to a correct program and is no mere timing: drawn in every hunt."""
    return {
        name: fault for name, fault in registry.faults().items()
        if fault.family == "environment" and not fault.lowers
    }


@st.composite
def plans(
    draw: st.DrawFn, scenario: Scenario, *, ranks: tuple[int, int] | None = None,
    bug: str | None = None, faults: bool = True, schedule: bool = True,
) -> Plan:
    """Plans of `scenario`: world size, parameters, environment faults, schedule.

    ranks: narrows the world sizes (inclusive). bug: a mutant in place of its twin. faults, schedule:
    whether to draw them.
    """
    low, high = ranks_of(scenario, ranks)
    plan = Plan(
        scenario=scenario.name, params=draw(struct_values(scenario.params)),
        ranks=draw(st.integers(low, high)), bug=bug,
    )
    if faults and draw(st.booleans()):
        for kind in environment_faults().values():
            values = fault_values(plan, scenario, kind)
            if values is not None:
                plan = msgspec.structs.replace(plan, faults=(draw(values),))
    if schedule:
        default = execute_plan(plan, scenario)
        drawn = draw(schedules(default.operations, default.points, len(default.raw)))
        plan = msgspec.structs.replace(plan, schedule=drawn)
    return plan


class PropertyFailed(AssertionError):
    """A property's counterexample; its text is the report. One subclass an identity."""


@functools.cache
def _failure_type(identity: str) -> type[PropertyFailed]:
    return type("PropertyFailed", (PropertyFailed,), {"__doc__": identity, "identity": identity})


def property(
    scenario: Scenario, *, plans: st.SearchStrategy[Plan] | None = None, max_examples: int = 100,
    minimise_seconds: float = 10.0,
) -> Callable[[Callable[[Outcome], None]], Callable[[], None]]:
    """A test: for all plans the run has no findings, and the decorated function accepts its outcome.

    The decorated function gets the Outcome and may assert more. plans: by default `plans(scenario)`.
    """
    strategy = _default_plans(scenario) if plans is None else plans

    def decorate(body: Callable[[Outcome], None]) -> Callable[[], None]:
        if len(inspect.signature(body).parameters) != 1:
            raise UsageError(f"{body.__name__}: a property takes one argument, the Outcome")

        failing: list[Outcome] = []

        @settings(
            max_examples=max_examples, deadline=None, database=None, report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.generate),
        )
        @given(strategy)
        def check(plan: Plan) -> None:
            outcome = run(plan, scenario=scenario)
            if outcome.findings:
                failing.append(outcome)
                raise _failure_type(outcome.findings[0].identity)
            body(outcome)

        @functools.wraps(body)
        def test() -> None:
            failing.clear()
            try:
                check()
            except PropertyFailed:
                raise _failure_type(failing[-1].findings[0].identity)(
                    _report(scenario, failing[-1], minimise_seconds)
                ) from None

        del test.__wrapped__  # type: ignore[attr-defined]  # pytest must not see the argument
        return test

    return decorate


def _default_plans(scenario: Scenario) -> st.SearchStrategy[Plan]:
    return plans(scenario)


def _report(scenario: Scenario, outcome: Outcome, seconds: float) -> str:
    from harness.minimise import minimise
    from harness.report.text import report

    small = minimise(outcome, outcome.findings[0], scenario, seconds=seconds)
    return "\n" + report(small.outcome, small.finding, scenario, small)
