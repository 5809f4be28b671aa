"""What a hunt tries: parameter sets from Hypothesis, each under the explorers' portfolio.

For each parameter set the portfolio starts with the default run and goes on with everything held to
its last legal moment, late data, a slow rank, PCT 1 to 3, POS, a random walk, a few sparse deviations,
operations that tear, and a crash; of a scenario with a recovery some crash states of its disk; where it
is for cores with caches, with those first. A program
with a disk gets a few of the explorers and of the many faults for each parameter set, and for the next
one those that follow: how a store is configured matters more there than one more schedule. The first
parameter set is the scenario's defaults in a world of four, what a user would try first. All randomness
follows from the root seed; the same root seed and limits hunt the same plans, whatever modules are
imported and whatever Hypothesis profile is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from harness import registry
from harness.ambient import generator
from harness.each_place import crashes, each_crash, each_place
from harness.errors import UnknownName, UsageError
from harness.finding import Finding, Outcome
from harness.plan import TORN, Deviation, Fault, Hold, Plan, Preempt, Visibility
from harness.record import Run
from harness.run import lowered, run
from harness.scenario import Scenario
from harness.schedule import PCT, POS, Chooser, PausedRank, RandomWalk, SlowRank
from harness.strategy import all_fault_counts, drawn, environment_faults, fault_values, plans, ranks_of

BATCH = 32
FIRST_RANKS = 4
FAULTS_IN_TURN = 5
CRASHES = 6  # of one parameter set, twice
CRASH_BUDGET = 64  # states of a crash point that they are drawn from
PLACES = 3  # of a fault in one parameter set
DATA_OPERATIONS = frozenset(
    ("put", "put_nbi", "remote_store", "put_signal", "store_issue", "get_issue", "get_nbi")
)

replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class Target:
    """What `--until` waits for: `checker/kind`, `checker` or `kind`, and optionally a rank.

    without: a checker whose findings count for nothing.
    """

    name: str = ""
    rank: int | None = None
    without: str = ""

    def meets(self, finding: Finding) -> bool:
        """Whether the finding is the one waited for."""
        named = self.name in ("", finding.name, finding.checker, finding.kind)
        heard = finding.checker != self.without
        return named and heard and self.rank in (None, finding.rank)


@dataclass(frozen=True, slots=True)
class Order:
    """What to hunt. plans_max or seconds bounds it; bug names a mutant, faults are bug faults."""

    scenario: Scenario
    root_seed: int
    bug: str | None = None
    faults: tuple[str, ...] = ()
    ranks: tuple[int, int] | None = None
    delivery: str = "relaxed"
    torn: int | None = None  # None: whole, and now and then in pieces
    caches: bool = False  # cores have caches in every plan
    each: bool = False  # each place of the faults in turn, in the first parameter set only
    plans_max: int | None = None
    seconds: float | None = None
    until: Target = Target()


@dataclass(slots=True)
class Attempt:
    """A plan to run. lowered: timing faults that its schedule stands for. outcome: once it ran."""

    explorer: str
    plan: Plan
    chooser: Chooser | None = None
    lowered: tuple[str, ...] = ()
    outcome: Outcome | None = None


def attempts(order: Order, before_plan: Callable[[Plan, str], None] | None) -> Iterator[Attempt]:
    """Every plan of a hunt, in order; endless but for `each`."""
    caches = order.caches or any(fault_type(name).caches for name in order.faults)
    visibility = Visibility(
        delivery="eager" if order.delivery == "eager" else "relaxed",
        torn=next((size for size in TORN if size == order.torn), 0),
        lines=caches, stale=caches,
    )
    placed = False
    for number, base in enumerate(_parameter_sets(order)):
        plan = replace(base, visibility=visibility)
        if order.each:
            if before_plan is not None:
                before_plan(plan, "probe")
            known = [fault_type(name) for name in order.faults] or environment_faults().values()
            for fault in each_place(plan, order.scenario, known):
                yield Attempt("each", replace(plan, faults=(fault,)))
            if not order.faults:
                for crash in each_crash(plan, order.scenario):
                    yield Attempt("each", replace(plan, crash=crash))
            return
        if not order.faults:
            yield from _portfolio(plan, order, number)
            continue
        if before_plan is not None:
            before_plan(plan, "probe")  # placing faults runs the program
        for attempt in _with_faults(plan, order, number):
            placed = True
            yield attempt
        if not placed and number >= BATCH:
            raise UsageError(
                f"{', '.join(order.faults)}: nothing in {order.scenario.name} for it to hit"
            )


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
    strategy = plans(order.scenario, ranks=ranks, bug=order.bug, faults=False, schedule=False)
    found = drawn(strategy, BATCH, "batch", order.root_seed, order.scenario.name, batch)
    if len(found) > 2:  # Hypothesis begins with the simplest plan; the smallest world shows least
        found.append(found.pop(0))
    return found


def _portfolio(plan: Plan, order: Order, number: int) -> Iterator[Attempt]:
    """What is tried with one parameter set."""
    first = Attempt("default", plan)
    yield first
    assert first.outcome is not None
    yield from _crashing(plan, order, number)
    default = first.outcome.run
    if not default.operations and default.points <= 0:
        return
    if any(event[1].startswith("disk_") for event in default.raw):
        yield from _in_turns(plan, order, number, default)
        return
    yield from _explorers(plan, order, number, default)
    for kind, found in all_fault_counts(plan, order.scenario, environment_faults().values()).items():
        yield from _faulty(plan, order, kind, number, found)


def _in_turns(plan: Plan, order: Order, number: int, default: Run) -> Iterator[Attempt]:
    """Some faults and explorers; the next parameter set goes on with those that follow."""
    counts = all_fault_counts(plan, order.scenario, environment_faults().values())
    kinds = list(counts)
    generator("turns", order.root_seed).shuffle(kinds)
    first = FAULTS_IN_TURN * number % max(len(kinds), 1)
    possible = [kind for kind in kinds[first:] + kinds[:first] if any(counts[kind])]
    for turn, kind in enumerate(possible[:FAULTS_IN_TURN]):
        plain, walking = _faulty(plan, order, kind, number, counts[kind])
        yield walking if turn % 2 else plain
    explorers = list(_explorers(plan, order, number, default))
    yield explorers[number % len(explorers)]


def _explorers(plan: Plan, order: Order, number: int, default: Run) -> Iterator[Attempt]:
    """Every explorer's attempt on one parameter set."""
    source = generator("portfolio", order.root_seed, number)
    points, operations = default.points, default.operations
    held = _held(plan, operations)
    stamp = (order.root_seed, number)
    if order.scenario.caches and not plan.visibility.caches:
        yield from _cached(plan, default, stamp)
    if held:
        yield Attempt("held", replace(plan, schedule=held))
        yield Attempt("late_data", replace(plan, schedule=data_holds(default)))
    yield Attempt("pct1", plan, PCT(1, points, *stamp))
    yield Attempt("slow_rank", plan, SlowRank(source.randrange(plan.ranks)))
    yield Attempt("pct2", plan, PCT(2, points, *stamp))
    yield Attempt("pos", plan, POS(*stamp))
    some = tuple(hold for hold in held if source.random() < 0.3)
    if some:
        yield Attempt("held", replace(plan, schedule=some))
    yield Attempt("random_walk", plan, RandomWalk(*stamp))
    yield Attempt("pct3", plan, PCT(3, points, *stamp))
    nth = source.randrange(max(len(default.raw) // plan.ranks, 1))
    yield Attempt("pause", plan, PausedRank(source.randrange(plan.ranks), nth))
    sparse = _sparse(source.randrange, len(held), points)
    yield Attempt("deviations", replace(plan, schedule=sparse))
    if order.torn is None and default.operations:
        pieces = replace(plan.visibility, torn=source.choice(TORN[1:]))
        yield Attempt("torn", replace(plan, visibility=pieces), RandomWalk(*stamp, "torn"))


def _cached(plan: Plan, default: Run, stamp: tuple[int, int]) -> Iterator[Attempt]:
    """The same where cores have caches: by default, with everything late, and in turns."""
    plan = replace(plan, visibility=replace(plan.visibility, lines=True, stale=True))
    stores = sum(event[1] == "store" for event in default.raw)  # which are operations in flight there
    yield Attempt("caches", plan)
    if held := _held(plan, default.operations + stores):
        yield Attempt("caches", replace(plan, schedule=held))
    yield Attempt("caches", plan, PCT(2, default.points + stores, *stamp, "caches"))
    yield Attempt("caches", plan, RandomWalk(*stamp, "caches"))


def _crashing(plan: Plan, order: Order, number: int) -> Iterator[Attempt]:
    """A few crashes of this parameter set: some that lose all that is not durable, some of any kind."""
    if order.scenario.recovery is None:
        return
    source = generator("crash", order.root_seed, number)
    for budget in (0, CRASH_BUDGET):
        found = [one for one in crashes(plan, order.scenario, budget) if budget or not one.keep]
        for crash in source.sample(found, min(CRASHES, len(found))):
            yield Attempt("crash_state", replace(plan, crash=crash))


def _held(plan: Plan, operations: int) -> tuple[Hold, ...]:
    """Every operation held to its last legal moment; none with eager delivery, which ignores it."""
    if plan.visibility.delivery == "eager":
        return ()
    return tuple([Hold(op) for op in range(operations)])


def data_holds(default: Run, rank: int | None = None) -> tuple[Deviation, ...]:
    """Holds of all data operations (of one rank): signals overtake whatever no fence keeps."""
    return tuple(
        Hold(event[7]) for event in default.raw
        if event[1] in DATA_OPERATIONS and rank in (None, default.lanes[event[0]][0])
    )


def _sparse(
    draw: Callable[[int], int], operations: int, points: int
) -> tuple[Deviation, ...]:
    """One to three random deviations. draw: a number below its argument."""
    found: list[Deviation] = []
    for _ in range(1 + draw(3)):
        if operations and draw(2):
            found.append(Hold(draw(operations), draw(8)))
        elif points:
            found.append(Preempt(draw(points), draw(4)))
    return tuple(found)


def _faulty(
    plan: Plan, order: Order, kind: type[Fault], number: int, counts: list[int]
) -> Iterator[Attempt]:
    """A plan with one fault of `kind` at a place that exists, if any, and one that is a random walk."""
    fault = _one(plan, order, kind, number, counts=counts)
    if fault is not None:
        faulty = replace(plan, faults=(fault,))
        yield Attempt("faults", faulty)
        yield Attempt("faults", faulty, RandomWalk(order.root_seed, number, "faulty"))


def _one(
    plan: Plan, order: Order, kind: type[Fault], number: object, *, everywhere_only: bool = False,
    counts: list[int] | None = None,
) -> Fault | None:
    """A fault of `kind`, drawn for this parameter set."""
    values = fault_values(
        plan, order.scenario, kind, everywhere_only=everywhere_only, counts=counts
    )
    if values is None:
        return None
    found = drawn(values, 2, "fault", order.root_seed, kind.__name__, number)
    return found[0 if everywhere_only else -1]


def fault_type(name: str) -> type[Fault]:
    """The registered fault called `name`. Raises UnknownName; UsageError for one that only real
    processes have."""
    known = registry.faults()
    if name not in known:
        raise UnknownName("fault", name, known)
    if "simulated" not in known[name].fabrics:
        raise UsageError(
            f"fault {name}: it hits a real process, and hunts are simulated; write it into a plan and "
            "run that with fabric='processes'"
        )
    return known[name]


def _with_faults(plan: Plan, order: Order, number: int) -> Iterator[Attempt]:
    """Plans with the named faults: three places each in the default run, then each one explored.

    The first place is every rank, where the fault can be a defect of the code.
    """
    places = [_placed(plan, order, number, turn) for turn in range(PLACES)]
    default: Run | None = None
    for faulty in places:
        lowers = tuple(fault.tag() for fault in faulty.faults if fault.lowers)
        if lowers:
            yield Attempt(lowers[0], lowered(faulty, order.scenario), lowered=lowers)
        elif faulty.faults:
            yield Attempt("default", faulty)
    for turn, faulty in enumerate(places):
        if not faulty.faults or any(fault.lowers for fault in faulty.faults):
            continue
        if default is None:
            default = run(plan, scenario=order.scenario).run
        yield from _explored(faulty, default, (order.root_seed, number, turn), turn)


def _placed(plan: Plan, order: Order, number: int, turn: int) -> Plan:
    """`plan` with one fault of each named kind, where there is something for it to hit."""
    for name in order.faults:
        fault = _one(
            plan, order, fault_type(name), (number, turn), everywhere_only=turn == 0
        )
        if fault is not None:
            plan = replace(plan, faults=(*plan.faults, fault))
    return plan


def _explored(
    faulty: Plan, default: Run, stamp: tuple[int, int, int], turn: int
) -> Iterator[Attempt]:
    """One place of a fault under the schedules that show most."""
    late = data_holds(default, None if turn == 0 else max(faulty.faults[0].rank, 0))
    if late:
        yield Attempt("late_data", replace(faulty, schedule=late))
    slow = generator("slow", *stamp).randrange(faulty.ranks)
    yield Attempt("slow_rank", faulty, SlowRank(slow))
    depth = 1 + turn % 3
    yield Attempt(f"pct{depth}", faulty, PCT(depth, default.points, *stamp))
    held = _held(faulty, default.operations)
    if held and turn % 2:
        yield Attempt("held", replace(faulty, schedule=held))
    else:
        yield Attempt("pos", faulty, POS(*stamp))
