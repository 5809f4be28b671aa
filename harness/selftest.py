"""The self-test: that every checker can fail, and what would be missed without it.

For each mutant of each scenario, in the world that it declares: a hunt with all checkers, those of the
scenario itself among them, must find it.
Where the run that finds it shows findings of one checker only, the hunt is repeated with that checker's
findings left out. A mutant that it then does not find survives without the checker. A checker without
any such mutant proves nothing here.

Not modelled: pairs of checkers; bug faults (the detection matrix has those).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from harness.checkers import CHECKERS, RACES
from harness.hunt import hunt
from harness.portfolio import Order, Target
from harness.scenario import Scenario

PLANS_MAX = 100
DEAF_PLANS = 40  # without a checker; as many as it took with all, if that is more
ROOT_SEED = 1


class Row(msgspec.Struct, frozen=True):
    """One checker. only: mutants that survive without it, as `scenario.mutant`. also: mutants whose
    run it finds beside others, or which another run shows to another checker."""

    checker: str
    only: tuple[str, ...]
    also: tuple[str, ...]


class SelfTest(msgspec.Struct, frozen=True):
    """rows: by checker. escaped: mutants that are not found with all checkers."""

    rows: tuple[Row, ...]
    escaped: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Every mutant is found, and every checker is needed."""
        return not self.escaped and all(row.only for row in self.rows)


def selftest(scenarios: Iterable[Scenario]) -> SelfTest:
    """Run it; some seconds for the registered scenarios."""
    scenarios = list(scenarios)
    own = [checker for scenario in scenarios for checker in scenario.checkers if scenario.mutants]
    only: dict[str, list[str]] = {checker.name: [] for checker in (*CHECKERS, RACES, *own)}
    also: dict[str, list[str]] = {name: [] for name in only}
    escaped: list[str] = []
    for scenario in scenarios:
        for mutant in scenario.mutants.values():
            name = f"{scenario.name}.{mutant.name}"
            order = Order(
                scenario, ROOT_SEED, bug=mutant.name, ranks=(mutant.ranks, mutant.ranks),
                plans_max=PLANS_MAX,
            )
            hunted = hunt(order)
            found = hunted.outcome
            if found is None:
                escaped.append(name)
                continue
            seen = {finding.checker for finding in found.findings}
            for checker in sorted(seen):
                deaf = replace(
                    order, until=Target(without=checker),
                    plans_max=max(DEAF_PLANS, hunted.statistics.plans),
                )
                missed = len(seen) == 1 and hunt(deaf).outcome is None
                (only if missed else also)[checker].append(name)
    return SelfTest(
        tuple(Row(name, tuple(only[name]), tuple(also[name])) for name in only), tuple(escaped)
    )
