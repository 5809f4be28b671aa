"""Hypothesis strategies for plans, and the decorator that tests use.

`plans(scenario)` draws ranks, parameters, environment faults and a sparse schedule. The bounds of
schedule positions come from the default run of the same drawn program, so drawing runs the program
once. Simpler means fewer and earlier: `[]` is the default run, Hold comes before Preempt, small
numbers before large ones.

`@property(scenario)` makes a test of a function that takes an Outcome. Hypothesis generates; a
failing plan goes through this project's own minimiser (minimise.py), not through Hypothesis's
shrinker, and the failure's text is the report.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase, InMemoryExampleDatabase, MultiplexedDatabase
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture.providers import HypothesisProvider
from msgspec import inspect as types

from harness import registry
from harness.ambient import generator
from harness.errors import UsageError
from harness.finding import Outcome
from harness.param_values import struct_values, values_of
from harness.plan import EVERY, Deviation, Fault, Hold, Plan, Preempt, Visibility
from harness.run import execute_plan, run
from harness.scenario import Scenario

DEVIATIONS_MAX = 4
TORN_SIMPLE_FIRST: tuple[Literal[0, 64, 8, 4], ...] = (0, 64, 8, 4)
CACHES_SIMPLE_FIRST = (
    Visibility(), Visibility(delayed=True), Visibility(stale=True), Visibility(lines=True),
    Visibility(lines=True, stale=True),
)
COUNTING = 1 << 30  # an `nth` that never comes: such a fault only counts its operations
T = TypeVar("T")


def drawn(strategy: st.SearchStrategy[T], count: int, *stamp: object) -> list[T]:
    """Up to `count` values that follow from `stamp` alone, the simplest one first.

    Fewer where the strategy has no more. Neither the profile in force, nor --hypothesis-seed, nor
    the set of imported modules matters.
    """
    found: list[T] = []

    @seed(generator(*stamp).getrandbits(64))
    @settings(
        max_examples=count, database=None, deadline=None, derandomize=False, backend="hypothesis",
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    with _without_constants():
        collect()
    return found


@contextmanager
def _without_constants() -> Iterator[None]:
    """Keep Hypothesis from drawing the constants of whatever local modules happen to be imported.

    It has no setting for that. Where its provider has no such method any more, draws depend on the
    imported modules again (tests/harness/test_strategy.py fails then).
    """
    name = "_maybe_draw_constant"
    held = getattr(HypothesisProvider, name, None)
    if held is None:
        yield
        return
    setattr(HypothesisProvider, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        setattr(HypothesisProvider, name, held)


def fault_counts(plan: Plan, scenario: Scenario, fault: type[Fault]) -> list[int]:
    """How many operations of each rank `fault` could hit in the default run of `plan`."""
    return all_fault_counts(plan, scenario, [fault])[fault]


def all_fault_counts(
    plan: Plan, scenario: Scenario, faults: Collection[type[Fault]]
) -> dict[type[Fault], list[int]]:
    """`fault_counts` of several kinds, from one run."""
    probes = tuple(
        fault(rank=rank, nth=COUNTING) for fault in faults for rank in range(plan.ranks)
    )
    probing = msgspec.structs.replace(plan, faults=probes, schedule=())
    seen = execute_plan(probing, scenario).seen or [0] * len(probes)
    return {
        fault: seen[number * plan.ranks : (number + 1) * plan.ranks]
        for number, fault in enumerate(faults)
    }


def fault_values(
    plan: Plan, scenario: Scenario, fault: type[Fault], *, everywhere_only: bool = False,
    counts: list[int] | None = None,
) -> st.SearchStrategy[Fault] | None:
    """Faults of one kind that can hit something in `plan`; None when nothing matches.

    everywhere_only: bug faults hit every rank. counts: what `fault_counts` gives, if it is known.
    """
    if counts is None:
        counts = fault_counts(plan, scenario, fault)
    places = [(rank, nth) for rank, count in enumerate(counts) for nth in range(count)]
    if fault.everywhere and places:  # a defect in the code hits every rank
        everywhere = [(EVERY, nth) for nth in range(EVERY, max(counts, default=0))]
        places = everywhere if everywhere_only else [*places, *everywhere]
    if not places:
        return None
    extra = {
        f.name: values_of(f.type, f"{fault.__name__}.{f.name}")
        for f in _fields(fault) if f.name not in ("rank", "nth")
    }
    return st.tuples(st.sampled_from(places), st.fixed_dictionaries(extra)).map(
        lambda drawn: fault(rank=drawn[0][0], nth=drawn[0][1], **drawn[1])
    )


def _fields(struct: type[msgspec.Struct]) -> Sequence[types.Field]:
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return info.fields


def schedules(
    operations: int, points: int, events: int
) -> st.SearchStrategy[tuple[Deviation, ...]]:
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
        return scenario.usual_ranks or (low, high)
    narrowed = max(low, ranks[0]), min(high, ranks[1])
    if narrowed[0] > narrowed[1]:
        raise UsageError(f"ranks {ranks[0]}..{ranks[1]}: {scenario.worlds}")
    return narrowed


def environment_faults() -> dict[str, type[Fault]]:
    """What the world does to a correct program and is no mere timing: drawn in every hunt."""
    return {
        name: fault for name, fault in registry.faults().items()
        if fault.family == "environment" and not fault.lowers and "simulated" in fault.fabrics
    }


@st.composite
def plans(
    draw: st.DrawFn, scenario: Scenario, *, ranks: tuple[int, int] | None = None,
    bug: str | None = None, faults: bool = True, schedule: bool = True,
) -> Plan:
    """Plans of `scenario`: world size, parameters, environment faults, schedule, torn operations.

    ranks: narrows the world sizes (inclusive). bug: a mutant in place of its twin. faults and
    schedule: whether to draw them; torn operations are part of the schedule.
    """
    low, high = ranks_of(scenario, ranks)
    params = struct_values(scenario.params, but=frozenset(scenario.given))
    plan = Plan(
        scenario=scenario.name, params=draw(params),
        ranks=draw(st.integers(low, high)), bug=bug,
    )
    if faults and draw(st.booleans()):
        counts = all_fault_counts(plan, scenario, environment_faults().values())
        fitting = [
            values for kind, found in counts.items()
            if (values := fault_values(plan, scenario, kind, counts=found)) is not None
        ]
        if fitting:
            plan = msgspec.structs.replace(plan, faults=(draw(st.one_of(*fitting)),))
    if schedule:
        torn = draw(st.sampled_from(TORN_SIMPLE_FIRST))
        caches = draw(st.sampled_from(CACHES_SIMPLE_FIRST)) if scenario.caches else Visibility()
        plan = msgspec.structs.replace(plan, visibility=msgspec.structs.replace(caches, torn=torn))
        default = execute_plan(plan, scenario)
        drawn = draw(schedules(default.operations, default.points, len(default.raw)))
        plan = msgspec.structs.replace(plan, schedule=drawn)
    return plan


class PropertyFailed(AssertionError):
    """A property's counterexample; its text is the report. One subclass an identity."""


@functools.cache
def failure_type(identity: str) -> type[PropertyFailed]:
    """The class of failures with this finding, so that Hypothesis and pytest tell them apart."""
    return type("PropertyFailed", (PropertyFailed,), {"__doc__": identity, "identity": identity})


def property(
    scenario: Scenario, *, plans: st.SearchStrategy[Plan] | None = None,
    max_examples: int | None = None, minimise_seconds: float = 10.0,
) -> Callable[[Callable[[Outcome], None]], Callable[[], None]]:
    """A test: for all plans the run has no findings, and the decorated function accepts it.

    The decorated function gets the Outcome and may assert more. plans: by default
    `plans(scenario)`. max_examples: by default that of the Hypothesis profile in force; randomness
    and database are the profile's too. A finding is minimised for at most `minimise_seconds`; what
    the function itself raises is shrunk by Hypothesis.
    """
    strategy = _default_plans(scenario) if plans is None else plans

    def decorate(body: Callable[[Outcome], None]) -> Callable[[], None]:
        if len(inspect.signature(body).parameters) != 1:
            raise UsageError(f"{body.__name__}: a property takes one argument, the Outcome")

        failing: list[Outcome] = []

        def check(plan: Plan) -> None:
            outcome = run(plan, scenario=scenario)
            if outcome.findings:
                failing.append(outcome)
                raise failure_type(outcome.findings[0].identity)
            body(outcome)

        generating, shrinking = _two_passes(check, strategy, max_examples)

        @functools.wraps(body)
        def test() -> None:
            failing.clear()
            try:
                generating()
            except (PropertyFailed, Flaky):
                if not failing:  # the function itself is flaky, not the program
                    raise
                raise failure_type(failing[-1].findings[0].identity)(
                    report_of(scenario, failing[-1], minimise_seconds)
                ) from None
            except Exception:
                shrinking()
                raise

        del test.__wrapped__  # pytest must not see the argument
        return test

    return decorate


def _two_passes(
    check: Callable[[Plan], None], strategy: st.SearchStrategy[Plan], max_examples: int | None
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Hypothesis tests of `check`: one only generates, one shrinks what the first one found."""
    profile = settings.default
    assert profile is not None
    found: ExampleDatabase = InMemoryExampleDatabase()
    stores = [found] if profile.database is None else [found, profile.database]
    common = settings(
        deadline=None, report_multiple_bugs=False, database=MultiplexedDatabase(*stores),
        max_examples=profile.max_examples if max_examples is None else max_examples,
        # Drawing a plan runs its program once: slow by Hypothesis's measure, and meant to be.
        suppress_health_check=[HealthCheck.too_slow],
    )
    ours = tuple(p for p in profile.phases if p not in (Phase.shrink, Phase.explain))
    unshrunk = settings(
        common, phases=(Phase.reuse, Phase.generate, Phase.shrink),
        database=_Unshrunk(MultiplexedDatabase(*stores)),
    )
    # Found again in the store, or, under a forced seed, by drawing the same once more.
    return settings(common, phases=ours)(given(strategy)(check)), unshrunk(given(strategy)(check))


class _Unshrunk(ExampleDatabase):
    """A store in which every failure counts as one that is still to be shrunk.

    Hypothesis does not shrink what it finds under a test's own key: it has done so before, it thinks.
    """

    def __init__(self, held: ExampleDatabase) -> None:
        super().__init__()
        self._held = held

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """What is held under the test's own key, when asked for its secondary one."""
        own = key.removesuffix(b".secondary")
        return () if own == key else self._held.fetch(own)

    def save(self, key: bytes, value: bytes) -> None:
        """Keep it."""
        self._held.save(key, value)

    def delete(self, key: bytes, value: bytes) -> None:
        """Forget it."""
        self._held.delete(key, value)


def _default_plans(scenario: Scenario) -> st.SearchStrategy[Plan]:
    return plans(scenario)


def report_of(scenario: Scenario, outcome: Outcome, seconds: float) -> str:
    """The report of an outcome's first finding, minimised for so many seconds."""
    from harness.minimise import minimise
    from harness.repeat import checked, repeatable
    from harness.report.text import report

    finding = outcome.findings[0]
    outcome = checked(outcome, finding, scenario)
    if not repeatable(outcome):
        return "\n" + report(outcome, finding, scenario)
    small = minimise(outcome, finding, scenario, seconds=seconds)
    return "\n" + report(small.outcome, small.finding, scenario, small)
