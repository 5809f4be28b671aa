"""From an explored run to the list of deviations that repeats it.

Two steps. Operations that were delivered later than at once become Holds with the exact number of
events. Then the run is repeated with these holds under a guide that knows who moved at each event;
wherever the default rule would have chosen somebody else, a Preempt is written down. The result, run as
a plan, has the same identity: the engine follows every choice by exactly one event of its owner.
"""

from __future__ import annotations

import msgspec

from harness.errors import EngineError
from harness.fabric.execute import Job
from harness.plan import Deviation, Hold, Plan
from harness.record import Run
from harness.run import execute_plan
from harness.scenario import Scenario


def holds_of(run: Run) -> list[Hold]:
    """A Hold for every operation that was not delivered at once, in issue order."""
    opened: dict[int, int] = {}
    holds: dict[int, Hold] = {}
    for index, event in enumerate(run.raw):
        number = event[7]
        if number < 0:
            continue
        if event[0] < run.ranks:
            opened[number] = index + 1
            if event[1] == "signal":  # issued in one go with its data
                opened[number - 1] = index + 1
        elif number in opened:
            late = index - opened.pop(number)
            if late > 0:
                holds[number] = Hold(number, late)
    for number in opened:  # never delivered: the run ended first
        holds[number] = Hold(number, 0)
    return [holds[number] for number in sorted(holds)]


def deviations_of(plan: Plan, scenario: Scenario, run: Run) -> tuple[Deviation, ...]:
    """The schedule that makes `plan` repeat `run`. Raises EngineError if it does not."""
    owners = [event[0] for event in run.raw]
    count = len(owners)

    def guide(clock: int) -> int:
        return owners[clock] if clock < count else -1

    holds = holds_of(run)
    guided = msgspec.structs.replace(plan, schedule=tuple(holds))
    jobs: list[Job] = []
    repeated = execute_plan(
        guided, scenario, guide=guide, job_out=jobs, events_max=max(count, 1) + 1
    )
    if repeated.identity() != run.identity():
        where = next(
            (i for i, (a, b) in enumerate(zip(repeated.raw, run.raw, strict=False))
             if a[:6] != b[:6]),
            min(len(repeated.raw), count),
        )
        raise EngineError(
            f"{plan.scenario}: a repeated run differs at event {where}: the program draws on "
            "something outside the plan (a clock, an address, a set's order), or the engine is wrong"
        )
    return (*holds, *jobs[0].derived)
