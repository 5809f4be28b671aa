"""`judge`: run one rank program of a test and hand back its outcome."""

from __future__ import annotations

import pytest

from harness import Plan, Scenario, run


@pytest.fixture
def judge():
    def judged(scenario: Scenario, ranks: int, *schedule, faults=(), **params):
        plan = Plan(
            scenario=scenario.name, params=scenario.params(**params), ranks=ranks,
            faults=faults, schedule=schedule,
        )
        return run(plan, scenario=scenario)

    return judged
