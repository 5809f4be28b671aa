"""The hunt: plan after plan of the portfolio, until something shows or the limits are reached.

A failing run that an explorer chose is converted to deviations before anything else happens to it, and
the plan of a finding is run once more (repeat.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from harness.ambient import now
from harness.checkers import RACES
from harness.finding import Finding, Outcome
from harness.plan import Hold, Plan
from harness.portfolio import Attempt, Order, Target, attempts, data_holds, fault_type
from harness.repeat import settled
from harness.run import explore, run
from harness.schedule import PausedRank, SlowRank
from harness.schedule.convert import holds_of

PUTS = frozenset(("put", "put_nbi", "remote_store", "put_signal"))
NOTIFIES = frozenset(("notify", "signal"))
RACES_IN = frozenset(("default",))  # explorers whose runs are searched for races
SHOWN = "race_shown"
VISIBLE_TRIES = 6  # schedules that may show what a race does


@dataclass(slots=True)
class Statistics:
    """What a hunt did; enough to prove that it explored.

    identities: distinct run identities (as hashes). fired: in how many plans each fault took
    effect.
    shares: plans by explorer. unfired: plans with faults of which none fired. notes: checkers that
    failed, and how often.
    """

    plans: int = 0
    seconds: float = 0.0
    events: int = 0
    identities: set[int] = field(default_factory=set)
    fired: Counter[str] = field(default_factory=Counter)
    shares: Counter[str] = field(default_factory=Counter)
    unfired: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)  # findings that --until did not want
    notes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result: the first outcome with a finding (its plan holds deviations only), or None."""

    order: Order
    statistics: Statistics
    outcome: Outcome | None
    finding: Finding | None
    explorer: str = ""

    @property
    def unfired(self) -> tuple[str, ...]:
        """Faults that were asked for and never fired: with one, a hunt is UNKNOWN, not a pass."""
        return tuple(name for name in self.order.faults if not self.statistics.fired[name])

    @property
    def vacuous(self) -> bool:
        """Faults were asked for and none ever fired."""
        return bool(self.order.faults) and len(self.unfired) == len(self.order.faults)


def hunt(
    order: Order, on_plan: Callable[[Statistics], None] | None = None,
    before_plan: Callable[[Plan, str], None] | None = None,
) -> Hunt:
    """Hunt until a finding, or until the limits are reached.

    on_plan: called after each plan, for progress. before_plan: called with each plan and its
    explorer before it runs (the slot file of the plan in flight).
    """
    statistics = Statistics()
    started = now()
    for attempt in attempts(order, before_plan):
        statistics.seconds = now() - started
        if order.plans_max is not None and statistics.plans >= order.plans_max:
            break
        if order.seconds is not None and statistics.seconds >= order.seconds:
            break
        if before_plan is not None:
            before_plan(attempt.plan, attempt.explorer)
        outcome = attempt.outcome = _run(attempt, order)
        _count(statistics, attempt, outcome)
        statistics.seconds = now() - started
        if on_plan is not None:
            on_plan(statistics)
        wanted = next((f for f in outcome.findings if order.until.meets(f)), None)
        if wanted is not None and wanted.checker == RACES.name:
            outcome, wanted = _visible(attempt, outcome, wanted, order, statistics)
        if wanted is not None:
            explored = attempt.chooser is not None
            explorer = attempt.explorer if outcome is attempt.outcome else SHOWN
            outcome = settled(outcome, wanted, order.scenario, explored=explored)
            return Hunt(order, statistics, outcome, wanted, explorer)
        statistics.passed_over.update(f.name for f in outcome.findings)
    statistics.seconds = now() - started
    return Hunt(order, statistics, None, None)


def _run(attempt: Attempt, order: Order) -> Outcome:
    if attempt.chooser is None:
        races = attempt.explorer in RACES_IN
        return run(attempt.plan, scenario=order.scenario, races=races)
    return explore(attempt.plan, order.scenario, attempt.chooser)


def _visible(
    attempt: Attempt, outcome: Outcome, race: Finding, order: Order, statistics: Statistics
) -> tuple[Outcome, Finding]:
    """A run in which the race has an effect, if holding back what takes part in it gives one.

    Tried: each one-sided operation of the race to its last legal moment, then all data of the run.
    """
    record = outcome.run
    numbers = dict.fromkeys(record.raw[at][7] for at in race.events if record.raw[at][7] >= 0)
    schedules = [(Hold(number),) for number in numbers][:VISIBLE_TRIES]
    for schedule in (*schedules, data_holds(record)):
        if not schedule:
            continue
        if order.plans_max is not None and statistics.plans >= order.plans_max:
            break
        plan = msgspec.structs.replace(attempt.plan, schedule=schedule)
        shown = run(plan, scenario=order.scenario, races=True)
        _count(statistics, Attempt(SHOWN, plan), shown)
        for finding in shown.findings:
            if finding.checker != RACES.name and order.until.meets(finding):
                return shown, finding
    return outcome, race


def _count(statistics: Statistics, attempt: Attempt, outcome: Outcome) -> None:
    record = outcome.run
    statistics.plans += 1
    statistics.events += len(record.raw)
    statistics.shares[attempt.explorer] += 1
    statistics.identities.add(hash(tuple([event[:6] for event in record.raw])))
    fired = {
        fault.tag() for fault, times in zip(attempt.plan.faults, record.fired, strict=True) if times
    }
    if record.deviations_applied:
        fired.update(attempt.lowered)
    if not fired and (attempt.plan.faults or attempt.lowered):
        statistics.unfired += 1
    chooser = attempt.chooser
    if attempt.plan.schedule or chooser is not None:
        fired.update(name for name, count in late_operations(outcome).items() if count)
    if chooser is not None and chooser.preemptions:
        fired.add("preemption")
        if isinstance(chooser, SlowRank):
            fired.add("slow_rank")
        elif isinstance(chooser, PausedRank):
            fired.add("pause")
    statistics.fired.update(fired)
    statistics.notes.update(note for note in outcome.notes if note.startswith("checker "))


def late_operations(outcome: Outcome) -> dict[str, int]:
    """How many puts and notifies were delivered later than as soon as they could be."""
    record = outcome.run
    late = {hold.op for hold in holds_of(record)}
    kinds = [e[1] for e in record.raw if e[7] in late and e[0] < record.ranks]
    return {
        "late_put": sum(kind in PUTS for kind in kinds),
        "late_notify": sum(kind in NOTIFIES for kind in kinds),
    }


__all__ = ["Hunt", "Order", "Statistics", "Target", "fault_type", "hunt"]
