"""Whether a finding shows again when its plan is run again.

A failing run that an explorer chose is first written as a plan of deviations. Then the plan is run
once more. A program that draws on something outside the plan (module globals that outlive a run,
os.urandom, a memory address, the order of a set) shows something else; its finding is kept, with a
note that says so, and nothing of it is minimised or called proven.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from harness.errors import EngineError
from harness.finding import Finding, Outcome
from harness.plan import Plan
from harness.run import run
from harness.scenario import Scenario
from harness.schedule import deviations_of

RUNS = 6  # of a plan whose finding did not show again, to say how often it does
MARK = "not repeatable: "
OUTSIDE = (
    "the program draws on something outside the plan (state that outlives a run, os.urandom, an "
    "address, a set's order), so the seed need not replay"
)


def repeatable(outcome: Outcome) -> bool:
    """Whether nothing showed that the outcome's plan does not repeat."""
    return not any(note.startswith(MARK) for note in outcome.notes)


def checked(outcome: Outcome, finding: Finding, scenario: Scenario) -> Outcome:
    """`outcome`, with a note if its plan, run again, gives another run or not this finding."""
    again = _again(outcome.plan, finding, scenario)
    if again.finds(finding.identity) is None:
        shown = 1 + sum(
            _again(outcome.plan, finding, scenario).finds(finding.identity) is not None
            for _ in range(RUNS - 2)
        )
        told = f"the same plan, run again, does not show it ({shown} of {RUNS} runs did)"
    elif again.run.identity() != outcome.run.identity():
        told = "the same plan, run again, makes other events"
    elif again.run.value_identity() != outcome.run.value_identity():
        told = "the same plan, run again, carries other values"
    else:
        return outcome
    return _noted(outcome, f"{told}: {OUTSIDE}")


def _again(plan: Plan, finding: Finding, scenario: Scenario) -> Outcome:
    return run(plan, scenario=scenario, races=finding.checker == "races")


def settled(outcome: Outcome, finding: Finding, scenario: Scenario, *, explored: bool) -> Outcome:
    """The same outcome as a plan that needs no explorer, checked."""
    if not explored:
        return checked(outcome, finding, scenario)
    try:
        schedule = deviations_of(outcome.plan, scenario, outcome.run)
    except EngineError as error:
        return _noted(outcome, str(error))
    found = run(msgspec.structs.replace(outcome.plan, schedule=schedule), scenario=scenario)
    if found.finds(finding.identity) is None:
        told = f"the same plan, run again, does not show it: {OUTSIDE}"
        return _noted(replace(outcome, plan=found.plan), told)
    return checked(found, finding, scenario)


def _noted(outcome: Outcome, told: str) -> Outcome:
    return replace(outcome, notes=(*outcome.notes, MARK + told))
