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

import msgspec

from harness.ambient import now
from harness.errors import one_line
from harness.finding import Finding, Outcome
from harness.plan import Plan
from harness.run import run
from harness.scenario import Scenario
from harness.supervise import Limits

FABRIC = "processes"
LEAST_SECONDS = 0.001  # left to a plan whose time is over: it ends at once, and says so


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What conducted and natural runs of one plan have shown of a finding.

    conducted, free: how many runs there were of each kind; asked: how many there were to be. emulated,
    natural: in how many of them it showed. instead: what the first conducted run that did not show it
    has shown. shown: the outcome of the first run that showed it, or of the first run.
    """

    identity: str
    conducted: int
    free: int
    emulated: int
    natural: int
    instead: str
    shown: Outcome
    asked: int

    @property
    def confirmed(self) -> bool:
        """Whether any run on real processes has shown the finding."""
        return bool(self.emulated or self.natural)

    def lines(self) -> list[str]:
        """The verdict, in one line each for emulated and natural order."""
        n = self.conducted
        told = []
        if self.emulated:
            told.append(f"confirmed with emulated delay {self.emulated} of {n}: {self.identity}")
        if self.emulated < n:
            told.append(
                f"not reproduced with emulated delay in {n - self.emulated} of {n}: {self.instead}"
            )
        if self.natural:
            told.append(
                f"confirmed natural {self.natural} of {self.free} (conductor off, seeded pauses)"
            )
        elif self.free:
            told.append(
                f"not reproduced in natural order, 0 of {self.free} (conductor off, seeded pauses): no "
                "pause happened to make the order that it needs"
            )
        if self.conducted + self.free < 2 * self.asked:
            told.append(f"the time for all runs was over before there were {self.asked} of each kind")
        return told


def confirm(
    plan: Plan, scenario: Scenario, finding: Finding, times: int = 10, *, limits: Limits | None = None,
    start: str = "fork",
) -> Confirmation:
    """Run `plan` on real processes, `times` conducted and `times` in natural order, for `finding`.

    limits: of an operation and a plan, and as `hunt` of all runs together: when that is over, so are the
    runs, of which there is at least one. start: how the processes begin (harness/run.py).
    """
    races = finding.checker == "races"
    identity = finding.identity
    limits = limits or Limits()
    ends = now() + limits.hunt

    def runs(seeds: Sequence[int | None]) -> list[Outcome]:
        made: list[Outcome] = []
        for natural in seeds:
            left = ends - now()
            if left <= 0 and (made or natural is not None):
                break
            within = msgspec.structs.replace(limits, hunt=max(left, LEAST_SECONDS))
            made.append(run(
                plan, FABRIC, scenario=scenario, races=races, natural=natural, limits=within, start=start
            ))
        return made

    conducted, free = runs([None] * times), runs(range(1, times + 1))
    hits = [outcome for outcome in conducted if outcome.finds(identity) is not None]
    missed = [outcome for outcome in conducted if outcome.finds(identity) is None]
    found = [outcome for outcome in free if outcome.finds(identity) is not None]
    return Confirmation(
        identity, len(conducted), len(free), len(hits), len(found), instead(missed),
        [*hits, *found, *conducted][0], times,
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
