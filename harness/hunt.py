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
from harness.diagnosis.table import BECAUSE
from harness.finding import REFUSED, Finding, Outcome
from harness.plan import Deviation, Hold, Plan
from harness.portfolio import Attempt, Order, Target, attempts, data_holds, fault_type
from harness.repeat import settled
from harness.run import explore, run
from harness.schedule import PausedLane, PausedRank, SlowRank
from harness.schedule.convert import holds_of

PUTS = frozenset(("put", "put_nbi", "remote_store", "put_signal"))
NOTIFIES = frozenset(("notify", "signal"))
SHOWN = "race_shown"
OWN_ACCESSES = frozenset(("load", "store", "remote_load"))  # made by the lane itself, at once
VISIBLE_TRIES = 6  # schedules that may show what a race does


@dataclass(slots=True)
class Statistics:
    """What a hunt did; enough to prove that it explored.

    identities: distinct run identities (as hashes). fired: in how many plans each fault took effect.
    shares: plans by explorer. unfired: plans with faults of which none fired. notes: checkers that
    failed, and how often. refused: what programs said of arguments that they do not take.
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
    refused: Counter[str] = field(default_factory=Counter)
    cut_short: bool = False  # an error loop that the limits ended


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
    trial = _Trial(order, on_plan, before_plan)
    statistics = trial.statistics
    for attempt in attempts(order, before_plan):
        if trial.spent():
            statistics.cut_short = order.each
            break
        outcome = attempt.outcome = trial.run(attempt)
        wanted = next((f for f in outcome.findings if order.until.meets(f)), None)
        if wanted is None:
            statistics.passed_over.update(f.name for f in outcome.findings)
            continue
        shown = trial.shown(attempt, outcome, wanted) if wanted.checker == RACES.name else None
        if shown is not None:
            attempt, wanted = shown
            assert attempt.outcome is not None
            outcome = attempt.outcome
        outcome = settled(outcome, wanted, order.scenario, explored=attempt.chooser is not None)
        return Hunt(order, statistics, outcome, wanted, attempt.explorer)
    return Hunt(order, statistics, None, None)


class _Trial:
    """The one way in which a hunt runs a plan: announced, run, counted, within the limits."""

    def __init__(
        self, order: Order, on_plan: Callable[[Statistics], None] | None,
        before_plan: Callable[[Plan, str], None] | None,
    ) -> None:
        self.order = order
        self.statistics = Statistics()
        self._on_plan = on_plan
        self._before_plan = before_plan
        self._started = now()

    def spent(self) -> bool:
        """Whether the number of plans or the time is used up."""
        order, statistics = self.order, self.statistics
        statistics.seconds = now() - self._started
        if order.plans_max is not None and statistics.plans >= order.plans_max:
            return True
        return order.seconds is not None and statistics.seconds >= order.seconds

    def run(self, attempt: Attempt) -> Outcome:
        """Run one plan; races are looked for in default runs and where one is to be shown."""
        if self._before_plan is not None:
            self._before_plan(attempt.plan, attempt.explorer)
        scenario = self.order.scenario
        if attempt.chooser is None:
            races = attempt.explorer in ("default", SHOWN)
            outcome = run(attempt.plan, scenario=scenario, races=races)
        else:
            outcome = explore(attempt.plan, scenario, attempt.chooser)
        _count(self.statistics, attempt, outcome)
        self.statistics.seconds = now() - self._started
        if self._on_plan is not None:
            self._on_plan(self.statistics)
        return outcome

    def shown(
        self, attempt: Attempt, outcome: Outcome, race: Finding
    ) -> tuple[Attempt, Finding] | None:
        """A run in which the race has an effect, if holding back what takes part in it gives one.

        Tried: each one-sided operation of the race to its last legal moment, then all data late, all
        notifies late, everything late, then each lane stopped before its access until the others have
        done what they can.
        """
        if self.order.delivery == "eager":  # it knows no holds
            return None
        raw = outcome.run.raw
        numbers = dict.fromkeys(raw[at][7] for at in race.events if raw[at][7] >= 0)
        schedules: list[tuple[Deviation, ...]] = [(Hold(number),) for number in numbers]
        notifies = tuple(Hold(event[7]) for event in raw if event[1] in NOTIFIES)
        everything = tuple(Hold(op) for op in range(outcome.run.operations))
        wide = (data_holds(outcome.run), notifies, everything)
        for schedule in (*schedules[:VISIBLE_TRIES], *dict.fromkeys(wide)):
            if not schedule or self.spent():
                continue
            tried = Attempt(SHOWN, msgspec.structs.replace(attempt.plan, schedule=schedule))
            if (finding := self._effect(tried)) is not None:
                return tried, finding
        for at in race.events[:VISIBLE_TRIES]:
            lane = raw[at][0]
            if lane < len(outcome.run.lanes) and raw[at][1] in OWN_ACCESSES and not self.spent():
                nth = sum(event[0] == lane for event in raw[:at])
                tried = Attempt(SHOWN, attempt.plan, PausedLane(lane, nth))
                if (finding := self._effect(tried)) is not None:
                    return tried, finding
        return None

    def _effect(self, tried: Attempt) -> Finding | None:
        """Run it; a finding that is no race, and says more than that a program's own check failed. Of one
        that knows no more than that the order decides, the race of that run."""
        tried.outcome = self.run(tried)
        for finding in tried.outcome.findings:
            if finding.checker not in (RACES.name, "golden") and self.order.until.meets(finding):
                if finding.cause != BECAUSE["order"][0]:
                    return finding
                races = [one for one in tried.outcome.findings if one.checker == RACES.name]
                return next(filter(self.order.until.meets, races), None)
        return None


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
    statistics.refused.update(note for note in outcome.notes if note.startswith(REFUSED))


def late_operations(outcome: Outcome) -> dict[str, int]:
    """How many puts and notifies were delivered later than as soon as they could be."""
    record = outcome.run
    late = {hold.op for hold in holds_of(record)}
    kinds = [e[1] for e in record.raw if e[7] in late and e[0] < len(record.lanes)]
    return {
        "late_put": sum(kind in PUTS for kind in kinds),
        "late_notify": sum(kind in NOTIFIES for kind in kinds),
    }


__all__ = ["Hunt", "Order", "Statistics", "Target", "fault_type", "hunt"]
