"""Median plans to the first finding, for every mutant and every applicable bug fault."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks import figure
from harness import registry
from harness.hunt import Order, hunt
from harness.scenario import Scenario

PLANS_MAX = 200
GOAL = 10


def _median(scenario: Scenario, seeds: int, **asked: Any) -> float:
    """The median over root seeds; a hunt that finds nothing counts as PLANS_MAX + 1."""
    counts = []
    for root in range(seeds):
        result = hunt(Order(scenario, root, plans_max=PLANS_MAX, **asked))
        counts.append(result.statistics.plans if result.finding else PLANS_MAX + 1)
    return statistics.median(counts)


def detection(*, full: bool) -> list[dict[str, Any]]:
    """Every (scenario, mutant) and (scenario, bug fault): 20 root seeds, 5 in the quick tier."""
    seeds = 20 if full else 5
    found = []
    medians = []
    for scenario in registry.scenarios().values():
        pairs: list[tuple[str, dict[str, Any]]] = [
            (f"mutant {name}", {"bug": name}) for name in scenario.mutants
        ]
        pairs += [
            (f"fault {name}", {"faults": (name,)})
            for name, expected in scenario.bug_faults.items()
            if not expected.startswith("equivalent")
        ]
        for label, asked in pairs:
            median = _median(scenario, seeds, **asked)
            medians.append(median)
            if full or median > GOAL:
                found.append(
                    figure(f"{scenario.name} {label}", median, "plans", f"<= {GOAL}", median <= GOAL)
                )
    found.append(
        figure(
            f"largest median of {len(medians)} pairs, {seeds} root seeds", max(medians), "plans",
            f"<= {GOAL}", max(medians) <= GOAL,
        )
    )
    return found
