"""A missing barrier found at P=8: how long until the proven minimum."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from benchmarks import figure
from harness import registry
from harness.hunt import Order, hunt
from harness.minimise import minimise
from harness.plan import encode

SCENARIO = "collectives.allreduce_mesh"
BUG = "missing_barrier"


def shrinking(*, full: bool) -> list[dict[str, Any]]:
    """20 root seeds (5 in the quick tier): proven minimum in under 10 s for at least 19."""
    seeds = 20 if full else 5
    scenario = registry.find(SCENARIO)
    good = 0
    slowest = 0.0
    results: Counter[bytes] = Counter()
    for root in range(seeds):
        found = hunt(Order(scenario, root, bug=BUG, ranks=(8, 8), plans_max=500))
        if found.outcome is None or found.finding is None:
            continue
        started = time.perf_counter()
        small = minimise(found.outcome, found.finding, scenario, seconds=10.0)
        seconds = time.perf_counter() - started
        slowest = max(slowest, seconds)
        results[encode(small.outcome.plan)] += 1
        good += small.proven and seconds < 10.0
    need = -(-seeds * 19 // 20)
    return [
        figure("shrunk to the proven minimum in 10 s", good, f"of {seeds} root seeds",
               f">= {need}", good >= need),
        figure("slowest shrink", round(slowest, 2), "s", "< 10", slowest < 10),
        figure("distinct minima", len(results), "plans", "", None),
        figure("most common minimum", results.most_common(1)[0][0].decode() if results else "none",
               "plan", "", None),
    ]
