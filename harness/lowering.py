"""What friendly timing faults (faults/timing.py) lower to: deviations of the default run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import msgspec

from harness.errors import PlanError
from harness.plan import Hold, Plan, Preempt
from harness.run import execute_plan, explore
from harness.scenario import Scenario
from harness.schedule import Chooser, PausedRank, PreemptedRank, SlowRank, deviations_of

Events = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


def held(
    plan: Plan, scenario: Scenario, kinds: Collection[str], rank: int, nth: int, until: int
) -> Plan:
    """`plan` with a Hold of rank `rank`'s `nth` operation among `kinds` (as in the default run).

    Where there is no such operation the plan stays as it is.
    """
    record = execute_plan(plan, scenario)
    numbers = [
        event[7] for event in record.raw
        if event[1] in kinds and event[7] >= 0 and record.lanes[event[0]][0] == rank
    ]
    if nth >= len(numbers):
        return plan
    return msgspec.structs.replace(plan, schedule=(*plan.schedule, Hold(numbers[nth], until)))


def explored(plan: Plan, scenario: Scenario, chooser: Chooser) -> Plan:
    """`plan` with the schedule that `chooser` makes, written as deviations; its Holds stay.

    Raises PlanError when the plan has Preempts already: they would mean something else here.
    """
    if any(isinstance(deviation, Preempt) for deviation in plan.schedule):
        raise PlanError(
            "plan: slow_rank, pause and preemption each make the whole order of lanes: name one of "
            "them, and none beside a Preempt"
        )
    outcome = explore(plan, scenario, chooser)
    return msgspec.structs.replace(plan, schedule=deviations_of(plan, scenario, outcome.run))


__all__ = ["Events", "PausedRank", "PreemptedRank", "SlowRank", "explored", "held"]
