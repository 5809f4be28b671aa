"""The store's scenarios: right in the default run, never silently wrong under faults and schedules."""

import hashlib

import pytest

from harness import Plan, Verdict, registry, run
from harness.hunt import Order, hunt
from scenarios.store import prefix_reuse, restart, round_trip

NAMES = ("concurrent_clients", "eviction", "prefix_reuse", "restart", "round_trip", "shards")
PLANS = 340  # of each scenario: 2,040 in the quick tier


def scenario_of(name):
    return registry.find(f"store.{name}")


def outcome_of(name, *faults, ranks=2, **params):
    scenario = scenario_of(name)
    plan = Plan(
        scenario=scenario.name, params=scenario.params(**params), ranks=ranks, faults=faults
    )
    return run(plan, scenario=scenario)


@pytest.mark.parametrize("name", NAMES)
def test_every_world_size_is_right_in_the_default_run(name):
    low, high = scenario_of(name).ranks
    for ranks in range(low, high + 1):
        outcome = outcome_of(name, ranks=ranks)
        assert outcome.verdict is Verdict.PASS, outcome.findings
        calls = outcome.run.observed["history"].calls
        assert {call.rank for call in calls} == set(range(ranks))
        assert all(call.ended >= 0 for call in calls)
        assert any(call.kind == "load" and 0 in call.codes for call in calls)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_silently_wrong_under_any_fault_and_schedule(name):
    found = hunt(Order(scenario_of(name), 20261129, plans_max=PLANS))
    assert found.finding is None, found.finding
    statistics = found.statistics
    assert statistics.plans == PLANS
    assert not statistics.notes
    expected = {"bit_flip", "crash", "io_error", "lost_write", "misdirected_write", "short_write"}
    assert expected <= set(statistics.fired)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_silently_wrong_in_twenty_thousand_plans(name):
    found = hunt(Order(scenario_of(name), 7, plans_max=3_400))
    assert found.finding is None, found.finding


@pytest.mark.parametrize("name", ["round_trip", "shards", "restart"])
def test_the_store_survives_every_error_at_every_operation(name):
    """The error loop, in the smallest world that has all calls."""
    found = hunt(Order(scenario_of(name), 1, faults=("io_error",), each=True, ranks=(1, 1)))
    assert found.finding is None, found.finding
    assert found.statistics.fired["io_error"] == found.statistics.plans > 150


def test_both_pipelines_and_direct_io_are_right():
    for cached in (0, 1, 4):
        for direct in (False, True):
            for elements in (1, 127, 128, 1025):
                outcome = outcome_of(
                    "round_trip", cached=cached, direct=direct, elements=elements, poll=direct
                )
                assert outcome.verdict is Verdict.PASS, (cached, direct, elements, outcome.findings)


def test_what_was_acknowledged_under_fsync_outlives_a_power_cut():
    for closed in (True, False):
        outcome = outcome_of("restart", durability="fsync", power_cut=True, closed=closed)
        assert outcome.verdict is Verdict.PASS, outcome.findings
        lookups = [
            call for call in outcome.run.observed["history"].calls
            if call.kind == "lookup" and call.opened == 2
        ]
        assert len(lookups) == 2
        assert all(sum(call.codes) >= 2 * restart.Params().committed for call in lookups)


def test_without_durability_a_power_cut_may_take_blocks_and_never_tears_one():
    for durability in ("none", "flush"):
        outcome = outcome_of("restart", durability=durability, power_cut=True)
        assert outcome.verdict is Verdict.PASS, outcome.findings
        lookups = [
            call for call in outcome.run.observed["history"].calls
            if call.kind == "lookup" and call.opened == 2
        ]
        assert any(0 in call.codes for call in lookups)


def test_prompts_with_a_common_beginning_share_their_first_blocks():
    system = "one two three four five six seven eight"
    one = prefix_reuse.chain(f"{system} why", 4)
    other = prefix_reuse.chain(f"{system} how so then", 2)
    assert one == prefix_reuse.chain(f"{system} how", 4)
    assert len(one) == 2
    assert one[0] == hashlib.md5(b"one\0two\0three\0four").digest()
    assert other[:4] == prefix_reuse.chain(system, 2)
    assert prefix_reuse.chain("three words only", 4) == []


def test_a_second_request_with_the_same_beginning_hits():
    outcome = outcome_of("prefix_reuse", ranks=1)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    first, second = [c for c in outcome.run.observed["history"].calls if c.kind == "prefix"][:2]
    assert sum(first.codes) == 0
    assert 0 < sum(second.codes) < len(second.blocks)


def test_two_runs_of_a_plan_are_the_same_in_events_and_values():
    for direct in (False, True):
        params = round_trip.Params(direct=direct, elements=333, cached=2)
        plan = Plan(scenario="store.round_trip", params=params, ranks=3)
        first, second = (run(plan, scenario=round_trip.scenario).run for _ in range(2))
        assert first.identity() == second.identity()
        assert first.value_identity() == second.value_identity()
