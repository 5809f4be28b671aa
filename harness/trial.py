"""One case of the detection matrix: its hunts, and what makes a finding evidence of its bug.

A finding is evidence only if its plan repeats, the fault fired in it, and the same plan without the
bug (the control) is clean: what the twin shows as well is not caught. Shrinking is bounded by runs, so
that no clock has a part in the result.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from harness.corpus import token_of
from harness.errors import UsageError
from harness.finding import Finding, Outcome
from harness.hunt import Order, Target, fault_type, hunt
from harness.minimise import minimise
from harness.plan import Plan
from harness.record import Run
from harness.repeat import repeatable
from harness.run import run
from harness.scenario import Scenario

SECONDS_MAX = 300.0  # of one minimisation; a guard, the number of runs is the limit
COMPARED = 12  # plans of an equivalent that are run without the fault as well
CALLED_PLANS = 20  # in which a survivor's code should be called
BeforePlan = Callable[[Plan, str], None]
Kind = Literal["mutant", "fault", "equivalent", "twin"]
replace = msgspec.structs.replace


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is tried. plans_max: of a hunt. world_plans: in each smaller world.

    mutant_runs, fault_runs: of one minimisation."""

    root_seeds: tuple[int, ...] = (0, 1, 2)
    plans_max: int = 100
    world_plans: int = 20
    mutant_runs: int = 3_000
    fault_runs: int = 1_000


class Case(msgspec.Struct, frozen=True):
    """What a row is about. name: of the mutant or fault; empty for the twin."""

    kind: Kind
    scenario: str
    name: str = ""


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest counterexample. from_ranks: the world in which it was found.

    token: the plan, for `rankfault replay`. why: what the proof covers, or why there is none."""

    finding: str
    from_ranks: int
    ranks: int
    deviations: int
    proven: bool
    why: str
    token: str


@dataclass(frozen=True, slots=True)
class Declared(Target):
    """Waits for any of several findings."""

    names: tuple[str, ...] = ()

    def meets(self, finding: Finding) -> bool:
        """Whether the finding is one of them."""
        return finding.name in self.names


@dataclass(frozen=True, slots=True)
class Hunted:
    """One hunt. doubt: why its finding is no evidence of the bug; empty: it is."""

    root: int
    plans: int
    ranks: int
    outcome: Outcome | None
    finding: Finding | None
    doubt: str

    @property
    def caught(self) -> bool:
        """Whether there is a finding that counts."""
        return self.finding is not None and not self.doubt


class Trial:
    """The hunts of one case, and their sum."""

    def __init__(
        self, case: Case, scenario: Scenario, limits: Limits, before_plan: BeforePlan | None
    ) -> None:
        self.case = case
        self.scenario = scenario
        self.limits = limits
        self.before_plan = before_plan
        self.base = Order(
            scenario, 0, bug=case.name if case.kind == "mutant" else None,
            faults=(case.name,) if case.kind in ("fault", "equivalent") else (),
            plans_max=limits.plans_max,
        )
        self.lowers = any(fault_type(name).lowers for name in self.base.faults)
        self.plans_run = 0
        self.identities: set[int] = set()
        self.fired: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.sample: list[Plan] = []  # plans with the fault

    def hunted(
        self, root: int, *, ranks: int | None = None, until: Target | None = None
    ) -> Hunted:
        """One hunt, in one world if `ranks` says so (a short one, unless `until` is given)."""
        order = dataclasses.replace(self.base, root_seed=root, until=until or Target())
        if ranks is not None:
            order = dataclasses.replace(order, ranks=(ranks, ranks))
            if until is None:
                order = dataclasses.replace(
                    order, plans_max=min(self.limits.world_plans, self.limits.plans_max)
                )

        def before(plan: Plan, explorer: str) -> None:
            if self.before_plan is not None:
                self.before_plan(plan, explorer)
            if plan.faults and explorer != "probe" and len(self.sample) < COMPARED:
                self.sample.append(plan)

        result = hunt(order, before_plan=before)
        self.plans_run += result.statistics.plans
        self.identities |= result.statistics.identities
        self.fired.update(result.statistics.fired)
        self.notes.update(result.statistics.notes)
        if result.outcome is None or result.finding is None:
            return Hunted(root, result.statistics.plans, 0, None, None, "")
        return Hunted(
            root, result.statistics.plans, result.outcome.plan.ranks, result.outcome, result.finding,
            self._doubt(result.outcome, result.finding),
        )

    def in_worlds(
        self, worlds: Iterable[int], roots: tuple[int, ...] = (), *, until: Target | None = None
    ) -> Hunted | None:
        """The first hunt that catches the bug, smallest world first. roots: the first by default."""
        for ranks in worlds:
            for root in roots or self.limits.root_seeds[:1]:
                try:
                    found = self.hunted(root, ranks=ranks, until=until)
                except UsageError:  # no such world, or nothing in it for the fault to hit
                    break
                if found.caught:
                    return found
        return None

    def _doubt(self, outcome: Outcome, finding: Finding) -> str:
        """Why a hunt's finding is no evidence; empty when it is."""
        if not repeatable(outcome):
            return "its plan does not repeat"
        if self.case.kind == "twin":
            return ""
        fired = outcome.run.deviations_applied if self.lowers else sum(outcome.run.fired)
        if self.base.faults and not fired:
            return "the fault did not fire in that plan"
        shown = self.shows_without(outcome.plan, finding)
        return f"its twin shows {shown.name} under the same plan" if shown else ""

    def _without(self, plan: Plan) -> Plan:
        """The control: the same plan without the bug."""
        faults = tuple(fault for fault in plan.faults if fault.tag() not in self.base.faults)
        schedule = () if self.lowers else plan.schedule
        return replace(plan, bug=None, faults=faults, schedule=schedule)

    def shows_without(self, plan: Plan, finding: Finding) -> Finding | None:
        """What the control shows, looked at as `finding` was."""
        races = finding.checker == "races"
        outcome = run(self._without(plan), scenario=self.scenario, races=races)
        return next(iter(outcome.findings), None)

    def changes_runs(self) -> bool:
        """Whether one of the sampled plans gives another run than its control."""
        return any(
            _trace(run(plan, scenario=self.scenario).run)
            != _trace(run(self._without(plan), scenario=self.scenario).run)
            for plan in self.sample
        )

    def is_called(self) -> bool:
        """Whether the mutant's code runs at all: a name bound at import may still be the twin's."""
        mutant = self.scenario.mutants[self.case.name]
        if isinstance(mutant.replacement, type):
            return True
        calls = 0

        @functools.wraps(mutant.replacement)
        def counted(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            return mutant.replacement(*args, **named)

        watched = dataclasses.replace(mutant, replacement=counted)
        scenario = dataclasses.replace(self.scenario, mutants={self.case.name: watched})
        root = self.limits.root_seeds[0]
        hunt(dataclasses.replace(self.base, scenario=scenario, root_seed=root, plans_max=CALLED_PLANS))
        return calls > 0

    def shrunk(self, found: Hunted) -> tuple[Shrunk, Finding | None]:
        """The smallest plan of a hunt's finding, and what its control shows (nothing, if all is well)."""
        assert found.outcome is not None
        assert found.finding is not None
        runs_max = self.limits.mutant_runs if self.case.kind == "mutant" else self.limits.fault_runs
        if repeatable(found.outcome):
            small = minimise(
                found.outcome, found.finding, self.scenario, seconds=SECONDS_MAX,
                runs_max=runs_max,
            )
            outcome, finding, proven, why = small.outcome, small.finding, small.proven, small.why
        else:
            outcome, finding, proven = found.outcome, found.finding, False
            why = "its plan does not repeat"
        plan = outcome.plan
        control = None if self.case.kind == "twin" else self.shows_without(plan, finding)
        return Shrunk(
            finding=finding.name, from_ranks=found.ranks, ranks=plan.ranks,
            deviations=len(plan.schedule), proven=proven, why=why, token=token_of(plan),
        ), control


def _trace(record: Run) -> tuple[object, ...]:
    """What tells two runs apart: order, values, what waits wait for."""
    awaited = tuple(sorted(record.awaited.items()))
    return record.identity(), record.value_identity(), awaited
