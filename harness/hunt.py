"""The hunt: parameter sets from Hypothesis, schedules from the explorer portfolio, until something shows.

For each parameter set the portfolio starts with the default run and goes on with everything held to
its last legal moment, a slow rank, PCT 1 to 3, POS, a random walk, a few sparse deviations and a
crash. The first parameter set is the scenario's defaults in a world of four, what a user would try
first. All randomness follows from the root seed; the same root seed and limits hunt the same plans.

A failing run that an explorer chose is converted to deviations before anything else happens to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from harness import registry
from harness.ambient import generator, now
from harness.errors import UnknownName, UsageError
from harness.finding import Finding, Outcome
from harness.plan import Deviation, Fault, Hold, Plan, Preempt, Visibility
from harness.run import explore, run
from harness.scenario import Scenario
from harness.schedule import PCT, POS, Chooser, PausedRank, RandomWalk, SlowRank, deviations_of
from harness.strategy import environment_faults, fault_values, plans, ranks_of

BATCH = 32
EVENTS_PER_DEFAULT = 40  # an explored run may be so many times as long as the default run
EVENTS_SLACK = 20_000
FIRST_RANKS = 4

replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class Target:
    """What `--until` waits for: `checker/kind`, `checker` or `kind`, and optionally a rank."""

    name: str = ""
    rank: int | None = None

    def meets(self, finding: Finding) -> bool:
        """Whether the finding is the one waited for."""
        named = self.name in ("", finding.name, finding.checker, finding.kind)
        return named and self.rank in (None, finding.rank)


@dataclass(slots=True)
class Statistics:
    """What a hunt did; enough to prove that it explored.

    identities: distinct run identities (as hashes). fired: how often each fault took effect. shares:
    plans by explorer. unfired: plans whose fault never fired.
    """

    plans: int = 0
    seconds: float = 0.0
    events: int = 0
    identities: set[int] = field(default_factory=set)
    fired: Counter[str] = field(default_factory=Counter)
    shares: Counter[str] = field(default_factory=Counter)
    unfired: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)  # findings that --until did not want


@dataclass(frozen=True, slots=True)
class Order:
    """What to hunt. One of plans_max and seconds bounds it; bug names a mutant, faults bug faults."""

    scenario: Scenario
    root_seed: int
    bug: str | None = None
    faults: tuple[str, ...] = ()
    ranks: tuple[int, int] | None = None
    delivery: str = "relaxed"
    plans_max: int | None = None
    seconds: float | None = None
    until: Target = Target()


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result: the first outcome with a finding (its plan holds deviations only), or None."""

    order: Order
    statistics: Statistics
    outcome: Outcome | None
    finding: Finding | None
    explorer: str = ""

    @property
    def vacuous(self) -> bool:
        """Faults were asked for and none ever fired: such a hunt is UNKNOWN, not a pass."""
        return bool(self.order.faults) and self.statistics.unfired == self.statistics.plans


@dataclass(frozen=True, slots=True)
class _Attempt:
    explorer: str
    plan: Plan
    chooser: Chooser | None = None


def hunt(
    order: Order, on_plan: Callable[[Statistics], None] | None = None,
    before_plan: Callable[[Plan, str], None] | None = None,
) -> Hunt:
    """Hunt until a finding, or until the limits are reached.

    on_plan: called after each plan, for progress. before_plan: called with each plan and its explorer
    before it runs (the slot file of the plan in flight).
    """
    statistics = Statistics()
    started = now()
    for attempt in _attempts(order):
        statistics.seconds = now() - started
        if order.plans_max is not None and statistics.plans >= order.plans_max:
            break
        if order.seconds is not None and statistics.seconds >= order.seconds:
            break
        if before_plan is not None:
            before_plan(attempt.plan, attempt.explorer)
        outcome = _run(attempt, order)
        _count(statistics, attempt, outcome)
        statistics.seconds = now() - started
        if on_plan is not None:
            on_plan(statistics)
        wanted = next((f for f in outcome.findings if order.until.meets(f)), None)
        if wanted is not None:
            return Hunt(order, statistics, _settled(attempt, outcome, order), wanted, attempt.explorer)
        statistics.passed_over.update(f.name for f in outcome.findings)
    statistics.seconds = now() - started
    return Hunt(order, statistics, None, None)


def _run(attempt: _Attempt, order: Order) -> Outcome:
    if attempt.chooser is None:
        return run(attempt.plan, scenario=order.scenario)
    return explore(attempt.plan, order.scenario, attempt.chooser)


def _settled(attempt: _Attempt, outcome: Outcome, order: Order) -> Outcome:
    """The same outcome as a plan that needs no explorer."""
    if attempt.chooser is None:
        return outcome
    schedule = deviations_of(attempt.plan, order.scenario, outcome.run)
    return run(replace(attempt.plan, schedule=schedule), scenario=order.scenario)


def _count(statistics: Statistics, attempt: _Attempt, outcome: Outcome) -> None:
    record = outcome.run
    statistics.plans += 1
    statistics.events += len(record.raw)
    statistics.shares[attempt.explorer] += 1
    statistics.identities.add(hash(tuple([event[:6] for event in record.raw])))
    for fault, fired in zip(attempt.plan.faults, record.fired, strict=True):
        if fired:
            statistics.fired[fault.tag()] += 1
        else:
            statistics.unfired += 1
    late = late_operations(outcome)
    for name, count in late.items():
        if count:
            statistics.fired[name] += 1
    chooser = attempt.chooser
    if chooser is not None and chooser.preemptions:
        statistics.fired["preemption"] += 1
        if isinstance(chooser, SlowRank):
            statistics.fired["slow_rank"] += 1
        elif isinstance(chooser, PausedRank):
            statistics.fired["pause"] += 1


def late_operations(outcome: Outcome) -> dict[str, int]:
    """How many puts and notifies were delivered later than at once."""
    record = outcome.run
    ranks = record.ranks
    counts = {"late_put": 0, "late_notify": 0}
    issued: dict[int, tuple[int, str]] = {}
    for index, event in enumerate(record.raw):
        number = event[7]
        if number < 0:
            continue
        if event[0] < ranks:
            issued[number] = index, event[1]
        elif number in issued:
            at, kind = issued.pop(number)
            if index > at + 2:
                counts["late_notify" if kind in ("notify", "signal") else "late_put"] += 1
    return counts


def _attempts(order: Order) -> Iterator[_Attempt]:
    """Every plan of a hunt, in order; endless."""
    visibility = Visibility(delivery="eager" if order.delivery == "eager" else "relaxed")
    for number, base in enumerate(_parameter_sets(order)):
        plan = replace(base, visibility=visibility)
        if order.faults:
            yield from _with_faults(plan, order, number)
        else:
            yield from _portfolio(plan, order, number)


def _parameter_sets(order: Order) -> Iterator[Plan]:
    """Plans without faults and schedule: the defaults first, then Hypothesis's, without end."""
    scenario = order.scenario
    registry.mutant_of(scenario, order.bug)
    low, high = ranks_of(scenario, order.ranks)
    try:
        params = scenario.params()
    except TypeError:
        params = None  # a field without a default: Hypothesis begins
    if params is not None:
        yield Plan(
            scenario=scenario.name, params=params, bug=order.bug,
            ranks=min(max(FIRST_RANKS, low), high),
        )
    batch = 0
    while True:
        yield from _drawn(order, (low, high), batch)
        batch += 1


def _drawn(order: Order, ranks: tuple[int, int], batch: int) -> list[Plan]:
    """One batch of Hypothesis's plans, a function of the root seed and the batch's number."""
    found: list[Plan] = []

    @seed(generator("batch", order.root_seed, order.scenario.name, batch).getrandbits(64))
    @settings(
        max_examples=BATCH, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(plans(order.scenario, ranks=ranks, bug=order.bug, faults=False, schedule=False))
    def collect(plan: Plan) -> None:
        found.append(plan)

    collect()
    if len(found) > 2:  # Hypothesis begins with the simplest plan; the smallest world shows least
        found.append(found.pop(0))
    return found


def _portfolio(plan: Plan, order: Order, number: int) -> Iterator[_Attempt]:
    """The explorers' turn on one parameter set."""
    source = generator("portfolio", order.root_seed, number)
    default = run(plan, scenario=order.scenario).run
    yield _Attempt("default", plan)
    if not default.operations and default.points <= 0:
        return
    points, operations = default.points, default.operations
    held = tuple(Hold(op) for op in range(operations))
    if held:
        yield _Attempt("held", replace(plan, schedule=held))
    stamp = (order.root_seed, number)
    yield _Attempt("pct1", plan, PCT(1, points, *stamp))
    yield _Attempt("slow_rank", plan, SlowRank(source.randrange(plan.ranks)))
    yield _Attempt("pct2", plan, PCT(2, points, *stamp))
    yield _Attempt("pos", plan, POS(*stamp))
    some = tuple(hold for hold in held if source.random() < 0.3)
    if some:
        yield _Attempt("held", replace(plan, schedule=some))
    yield _Attempt("random_walk", plan, RandomWalk(*stamp))
    yield _Attempt("pct3", plan, PCT(3, points, *stamp))
    nth = source.randrange(max(len(default.raw) // plan.ranks, 1))
    yield _Attempt("pause", plan, PausedRank(source.randrange(plan.ranks), nth))
    yield _Attempt("deviations", replace(plan, schedule=_sparse(source, operations, points)))
    for kind in environment_faults().values():
        yield from _faulty(plan, order, kind, number, "faults")


def _sparse(source: object, operations: int, points: int) -> tuple[Deviation, ...]:
    """One to three random deviations."""
    draw = source.randrange  # type: ignore[attr-defined]
    found: list[Deviation] = []
    for _ in range(1 + draw(3)):
        if operations and draw(2):
            found.append(Hold(draw(operations), draw(8)))
        elif points:
            found.append(Preempt(draw(points), draw(4)))
    return tuple(found)


def _faulty(
    plan: Plan, order: Order, kind: type[Fault], number: int, explorer: str
) -> Iterator[_Attempt]:
    """One plan with one fault of `kind` at a place that exists, under one explorer or none."""
    fault = _one(plan, order, kind, number)
    if fault is not None:
        yield _Attempt(explorer, replace(plan, faults=(fault,)))
        yield _Attempt(
            explorer, replace(plan, faults=(fault,)), RandomWalk(order.root_seed, number, "faulty")
        )


def _one(plan: Plan, order: Order, kind: type[Fault], number: object) -> Fault | None:
    """A fault of `kind`, drawn for this parameter set."""
    values = fault_values(plan, order.scenario, kind)
    if values is None:
        return None
    found: list[Fault] = []

    @seed(generator("fault", order.root_seed, kind.__name__, number).getrandbits(64))
    @settings(
        max_examples=2, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(values)
    def collect(fault: Fault) -> None:
        found.append(fault)

    collect()
    return found[-1]


def fault_type(name: str) -> type[Fault]:
    """The registered fault called `name`. Raises UnknownName."""
    known = registry.faults()
    if name not in known:
        raise UnknownName("fault", name, known)
    return known[name]


def _with_faults(plan: Plan, order: Order, number: int) -> Iterator[_Attempt]:
    """Plans with the named faults: a few places each in the default run, held and explored."""
    default: Outcome | None = None
    for turn in range(4):
        faulty = plan
        for name in order.faults:
            kind = fault_type(name)
            fault = _one(plan, order, kind, (number, turn))
            if fault is None:
                continue
            faulty = replace(faulty, faults=(*faulty.faults, fault))
        if not faulty.faults:
            if number > BATCH:
                raise UsageError(
                    f"{', '.join(order.faults)}: nothing in {order.scenario.name} for it to hit"
                )
            return
        lowered = [fault for fault in faulty.faults if fault.lowers]
        if lowered:
            for fault in lowered:
                faulty = fault.lower(faulty, order.scenario)
            yield _Attempt(lowered[0].tag(), faulty)
            continue
        yield _Attempt("default", faulty)
        if default is None:
            default = run(plan, scenario=order.scenario)
        stamp = (order.root_seed, number, turn)
        points = default.run.points
        yield _Attempt("pct1", faulty, PCT(1 + turn % 3, points, *stamp))
        if turn % 2:
            held = tuple(Hold(op) for op in range(default.run.operations))
            yield _Attempt("held", replace(faulty, schedule=held))
        else:
            yield _Attempt("pos", faulty, POS(*stamp))


__all__ = ["Hunt", "Order", "Statistics", "Target", "fault_type", "hunt"]
