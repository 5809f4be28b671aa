"""The error loop: a fault at the first operation that it can hit, at the second, until there is no more;
and the crash loop: each state in which a crash may leave the disk.

For one parameter set, the scenario's defaults where it has them. Up to its operation a run is the default
run, so the operations that the default run offers are all there are. A fault's choices (an errno) are
tried in turn, its numbers keep their defaults; a world with several ranks has its turn rank by rank. Not
tried: two faults at once, other schedules (the hunt's own portfolio does that).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import inspect as types

from harness.crash_states import BUDGET, CrashStates
from harness.errors import RankfaultError
from harness.plan import Crash, Fault, Plan
from harness.run import execute_plan
from harness.scenario import Scenario
from harness.simulated_disk import SimulatedDisk
from harness.strategy import all_fault_counts

PLANS_MAX = 2_000  # crashes of one program that a shrink looks at
PLANS_BUDGET = 64  # of one crash point


def each_place(plan: Plan, scenario: Scenario, kinds: Iterable[type[Fault]]) -> Iterator[Fault]:
    """Every fault of these kinds that fires in `plan`: each choice, rank and operation."""
    kinds = list(kinds)
    counts = all_fault_counts(plan, scenario, kinds)
    for kind in kinds:
        for chosen in _choices(kind):
            for rank, count in enumerate(counts[kind]):
                for nth in range(count):
                    yield kind(rank=rank, nth=nth, **chosen)


def each_crash(plan: Plan, scenario: Scenario, budget: int = BUDGET) -> Iterator[Crash]:
    """Every crash of `plan`'s run, the cheapest first; nothing where the scenario has no recovery.

    After those of the run the crashes of each one's recovery: at each point, with all that was done or
    only what is durable.
    """
    first = list(crashes(msgspec.structs.replace(plan, crash=None), scenario, budget))
    yield from first
    for crash in first:
        begun = msgspec.structs.replace(plan, crash=crash)
        for again in crashes(begun, scenario, 0):
            yield msgspec.structs.replace(crash, again=again)


def crashes(plan: Plan, scenario: Scenario, budget: int) -> Iterator[Crash]:
    """The crashes of the last part of a run: of its recovery, where the plan has a crash already.

    budget: of each crash point; 0: its two simplest states. Nothing where there is no recovery.
    """
    if scenario.recovery is None:
        return
    observed = execute_plan(plan, scenario).observed
    disk = observed.get("disk") if isinstance(observed, dict) else None
    if isinstance(disk, SimulatedDisk):
        states = CrashStates(disk.log, disk.tree.profile, disk.tree.base, budget=budget)
        yield from states if budget else states.simplest()


def crash_plans(plan: Plan, scenario: Scenario, most: int = PLANS_MAX) -> Iterator[Plan]:
    """A plan with a crash: as it is, without it, with up to `most` others of its run, simplest first."""
    yield plan
    calm = msgspec.structs.replace(plan, crash=None)
    yield calm
    try:
        for crash in itertools.islice(crashes(calm, scenario, PLANS_BUDGET), most):
            yield msgspec.structs.replace(plan, crash=crash)
    except RankfaultError:  # the program does not run
        return


def simpler_crashes(plan: Plan, scenario: Scenario) -> Iterator[Plan]:
    """`plan` without its crash, then with each one that comes before its own in order."""
    if plan.crash is not None:
        for one in itertools.islice(crash_plans(plan, scenario), 1, None):
            if one == plan:
                return
            yield one


def _choices(kind: type[Fault]) -> Iterator[dict[str, object]]:
    """The combinations of a fault's literal fields."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    fields = {
        field.name: field.type.values for field in info.fields
        if isinstance(field.type, types.LiteralType)
    }
    for values in itertools.product(*fields.values()):
        yield dict(zip(fields, values, strict=True))
