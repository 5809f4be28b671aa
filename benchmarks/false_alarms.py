"""Findings in plans over correct systems: there must be none.

All twins, all explorers, environment faults on, races looked for in default runs, and each delivery
switch that the twins allow, which is every one that is built: whole and torn operations, relaxed and
eager delivery.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import figure
from harness import registry
from harness.hunt import Order, Statistics, hunt
from harness.plan import TORN

SWITCHES = (*(("relaxed", torn) for torn in TORN), ("eager", 0))


def false_alarms(*, full: bool) -> list[dict[str, Any]]:
    """100,000 plans over all twins and switches (5,000 in the quick tier), in equal shares."""
    total = 100_000 if full else 5_000
    scenarios = list(registry.scenarios().values())
    share = -(-total // (len(scenarios) * len(SWITCHES)))
    alarms: list[str] = []
    plans = 0
    fired: Statistics = Statistics()
    started = time.perf_counter()
    for scenario in scenarios:
        for delivery, torn in SWITCHES:
            left, root = share, 0
            while left > 0:
                result = hunt(Order(scenario, root, plans_max=left, delivery=delivery, torn=torn))
                plans += result.statistics.plans
                left -= result.statistics.plans
                if result.finding is not None:
                    alarms.append(f"{scenario.name} {delivery} torn {torn}: {result.finding.name}")
                fired.fired.update(result.statistics.fired)
                root += 1
    seconds = time.perf_counter() - started
    shown = ", ".join(f"{name} {count}" for name, count in sorted(fired.fired.items()))
    return [
        figure("false alarms", len(alarms), f"findings in {plans} plans", "0", not alarms),
        *(figure("false alarm", alarm, "", "", None) for alarm in sorted(set(alarms))),
        figure("plans a second over the twins", round(plans / seconds), "plans/s", "", None),
        figure("environment faults that fired", shown, "plans", "", None),
    ]
