"""Whether real processes show what the simulated fabric found, with the same plan.

A finding of the simulator is a claim. It is *confirmed with emulated delay* k of n when the conductor
imposes the plan's schedule on real processes: the order of operations is the plan's, the processes,
their memory and their system calls are real. It is *confirmed natural* k of n when the processes run
in their own order, with pauses that follow from the numbers 1 to n: no schedule is imposed, so a finding
that needs a rare order may well not show. Not modelled: delays of a real network, several machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import one_line
from harness.finding import Finding, Outcome
from harness.plan import Plan
from harness.run import run
from harness.scenario import Scenario

FABRIC = "processes"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What n conducted and n natural runs of one plan have shown of a finding.

    emulated, natural: in how many it showed. instead: what the first conducted run that did not show it
    has shown. shown: the outcome of the first run that showed it, or of the first run.
    """

    identity: str
    times: int
    emulated: int
    natural: int
    instead: str
    shown: Outcome

    @property
    def confirmed(self) -> bool:
        """Whether any run on real processes has shown the finding."""
        return bool(self.emulated or self.natural)

    def lines(self) -> list[str]:
        """The verdict, in one line each for emulated and natural order."""
        n = self.times
        told = []
        if self.emulated:
            told.append(f"confirmed with emulated delay {self.emulated} of {n}: {self.identity}")
        if self.emulated < n:
            told.append(
                f"not reproduced with emulated delay in {n - self.emulated} of {n}: {self.instead}"
            )
        if self.natural:
            told.append(
                f"confirmed natural {self.natural} of {n} (conductor off, seeded pauses)"
            )
        else:
            told.append(
                f"not reproduced in natural order, 0 of {n} (conductor off, seeded pauses): no pause "
                "happened to make the order that it needs"
            )
        return told


def confirm(plan: Plan, scenario: Scenario, finding: Finding, times: int = 10) -> Confirmation:
    """Run `plan` on real processes, `times` conducted and `times` in natural order, for `finding`."""
    races = finding.checker == "races"
    identity = finding.identity
    conducted = [
        run(plan, FABRIC, scenario=scenario, races=races) for _ in range(times)
    ]
    free = [
        run(plan, FABRIC, scenario=scenario, races=races, natural=number + 1)
        for number in range(times)
    ]
    hits = [outcome for outcome in conducted if outcome.finds(identity) is not None]
    missed = [outcome for outcome in conducted if outcome.finds(identity) is None]
    found = [outcome for outcome in free if outcome.finds(identity) is not None]
    return Confirmation(
        identity, times, len(hits), len(found), instead(missed), [*hits, *found, *conducted][0]
    )


def instead(outcomes: Sequence[Outcome]) -> str:
    """What the first of these outcomes has shown; "" where there is none."""
    if not outcomes:
        return ""
    first = outcomes[0]
    if first.findings:
        return f"the run shows {first.findings[0].identity}"
    if first.run.failures:
        return f"the run ended early: {one_line(first.run.failures[0].error)}"
    if first.notes:
        return f"the run proves nothing: {'; '.join(first.notes)}"
    return f"the run is {first.verdict.name}"
