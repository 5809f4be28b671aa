"""Replays of drawn plans: identical identities, in process and in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks import figure
from harness import Plan, plans, registry, run
from harness.plan import decode_wire, encode, from_wire

PROCESSES = 10

_CHILD = """
import json, sys
from benchmarks.replay import identities
print(json.dumps([identities(text) for text in json.load(sys.stdin)]))
"""


def identities(text: str) -> list[str]:
    """Both identities of the plan written in `text`."""
    wire = decode_wire(text)
    scenario = registry.find(wire.scenario)
    plan = from_wire(wire, scenario.params, registry.faults())
    record = run(plan, scenario=scenario).run
    return [record.identity(), record.value_identity()]


def _drawn(count: int) -> list[Plan]:
    found: list[Plan] = []
    scenarios = list(registry.scenarios().values())

    @seed(0)
    @settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(scenarios).flatmap(plans))
    def collect(plan: Plan) -> None:
        found.append(plan)

    collect()
    return found[:count]


def replay(*, full: bool) -> list[dict[str, Any]]:
    """50 plans, 200 replays each (10 x 50 in the quick tier), and 10 fresh processes."""
    count, times = (50, 200) if full else (10, 50)
    texts = [encode(plan).decode() for plan in _drawn(count)]
    first = [identities(text) for text in texts]
    differing = sum(
        identities(text) != wanted
        for text, wanted in zip(texts, first, strict=True) for _ in range(times - 1)
    )
    strangers = 0
    for number in range(PROCESSES):
        made = subprocess.run(
            [sys.executable, "-c", _CHILD], input=json.dumps(texts), text=True, check=True,
            capture_output=True, env={**os.environ, "PYTHONHASHSEED": str(1000 + number)},
        )
        strangers += json.loads(made.stdout) != first
    return [
        figure("differing replays in process", differing, f"of {len(texts) * times}", "0",
               differing == 0),
        figure("differing fresh processes", strangers, f"of {PROCESSES}", "0", strangers == 0),
    ]
