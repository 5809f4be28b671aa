"""The summary proves exploration, says UNKNOWN where nothing was proven, and suggests a command."""

from __future__ import annotations

import shlex

import pytest

from harness import Verdict, registry
from harness.hunt import Hunt, Order, Statistics, Target, hunt
from harness.report.hunt_text import command, next_command, plain, reason_of, summary, verdict_of

SCENARIO = registry.find("collectives.put_get")


def test_it_counts_what_the_hunt_did():
    found = hunt(Order(SCENARIO, 5, plans_max=40))
    text = summary([found])
    assert verdict_of(found) is Verdict.PASS
    assert "40 plans in" in text
    assert f"{len(found.statistics.identities)} distinct runs" in text
    assert "late_put" in text.split("faults fired:")[1].split("explorers:")[0]
    assert "default" in text.split("explorers:")[1]
    data = plain(found)
    assert data["plans"] == 40
    assert data["faults_fired"] == dict(found.statistics.fired)
    assert sum(data["explorers"].values()) == 40


@pytest.mark.parametrize("width", [80, 50, 40])
def test_it_fits(width):
    orders = [
        Order(one, 1, bug=bug) for one in registry.scenarios().values() for bug in one.mutants
    ]
    hunts = [Hunt(order, Statistics(plans=12_345, seconds=3), None, None) for order in orders]
    assert max(len(line) for line in summary(hunts, width=width).splitlines()) <= width


def test_a_hunt_whose_fault_never_fired_is_unknown():
    vacuous = Hunt(
        Order(SCENARIO, 1, faults=("crash",)), Statistics(plans=3, unfired=3), None, None
    )
    assert verdict_of(vacuous) is Verdict.UNKNOWN
    assert reason_of(vacuous) == "crash never fired in 3 plans"
    assert "UNKNOWN collectives.put_get --fault crash: crash never fired" in " ".join(
        summary([vacuous]).split()
    )
    assert next_command([vacuous], None) == "rankfault list faults"


def test_no_plan_and_a_checker_that_failed_are_unknown():
    none = Hunt(Order(SCENARIO, 1), Statistics(), None, None)
    assert (verdict_of(none), reason_of(none)) == (Verdict.UNKNOWN, "no plan ran")
    statistics = Statistics(plans=2)
    statistics.notes["checker x failed: KeyError: 1"] += 2
    failed = Hunt(Order(SCENARIO, 1), statistics, None, None)
    assert verdict_of(failed) is Verdict.UNKNOWN
    assert reason_of(failed) == "checker x failed: KeyError: 1 (2 times)"


def test_the_command_hunts_the_same_again():
    order = Order(
        SCENARIO,
        9,
        bug="put_without_wait",
        faults=("crash", "late_put"),
        ranks=(2, 4),
        delivery="eager",
        torn=8,
        until=Target("deadlock", 1),
    )
    words = shlex.split(command(order, 12))
    assert words == [
        "rankfault",
        "hunt",
        "collectives.put_get",
        "--bug",
        "put_without_wait",
        "--fault",
        "crash",
        "--fault",
        "late_put",
        "--ranks",
        "2..4",
        "--delivery",
        "eager",
        "--torn",
        "8",
        "--until",
        "deadlock@rank=1",
        "--root-seed",
        "9",
        "--plans",
        "12",
    ]


def test_the_next_command_depends_on_what_came_out():
    passed = Hunt(Order(SCENARIO, 1), Statistics(plans=2), None, None)
    assert next_command([passed], "a b/seed.json") == "rankfault replay 'a b/seed.json'"
    assert next_command([passed], None).startswith("rankfault hunt collectives.put_get --bug ")
    planted = Hunt(Order(SCENARIO, 1, bug="put_without_wait"), Statistics(plans=2), None, None)
    assert next_command([planted], None).endswith("--bug put_without_wait --minutes 10")
