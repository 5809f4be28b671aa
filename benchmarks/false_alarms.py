"""Findings in plans over correct systems with environment faults: there must be none."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import figure
from harness import registry
from harness.hunt import Order, Statistics, hunt


def false_alarms(*, full: bool) -> list[dict[str, Any]]:
    """20,000 plans over all twins (2,000 in the quick tier), in equal shares."""
    total = 20_000 if full else 2_000
    scenarios = list(registry.scenarios().values())
    alarms = 0
    plans = 0
    fired: Statistics = Statistics()
    started = time.perf_counter()
    for scenario in scenarios:
        left = -(-total // len(scenarios))
        root = 0
        while left > 0:
            result = hunt(Order(scenario, root, plans_max=left))
            plans += result.statistics.plans
            left -= result.statistics.plans
            alarms += result.finding is not None
            fired.fired.update(result.statistics.fired)
            root += 1
    seconds = time.perf_counter() - started
    shown = ", ".join(f"{name} {count}" for name, count in sorted(fired.fired.items()))
    return [
        figure("false alarms", alarms, f"findings in {plans} plans", "0", alarms == 0),
        figure("plans a second over the twins", round(plans / seconds), "plans/s", "", None),
        figure("environment faults that fired", shown, "plans", "", None),
    ]
