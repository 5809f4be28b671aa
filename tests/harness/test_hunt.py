"""Hunts: reproducible from their root seed, explorers in turn, honest about what took effect."""

from typing import Annotated

import pytest
import torch
from msgspec import Meta

from harness import Hold, Plan, Preempt, run, scenario, values
from harness.errors import UnknownName, UsageError
from harness.hunt import Order, Target, fault_type, hunt, late_operations


def exchange(rank, n, fenced):
    data = rank.window("data", n, torch.float32)
    cells = rank.window("cells", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(data, right, values(rank.index, n))
    if fenced:
        rank.fence()
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(data, 0, n)


def from_left(size, n):
    return [values((rank - 1) % size, n) for rank in range(size)]


@scenario(reference=from_left)
def ring(rank, n: Annotated[int, Meta(ge=1, le=64)] = 4):
    """Right."""
    return exchange(rank, n, fenced=True)


@scenario(reference=from_left)
def unfenced(rank, n: Annotated[int, Meta(ge=1, le=64)] = 4):
    """Wrong: the notify may overtake the put."""
    return exchange(rank, n, fenced=False)


@scenario(reference=lambda size: [None] * size, ranks=(4, 4))
def raising(rank):
    """Rank 1 raises."""
    rank.window("cells", 1, torch.int32)
    if rank.index == 1:
        raise ValueError("rank 1")


@scenario(reference=lambda size: [None] * size)
def quietless(rank):
    """Windows and a sync, nothing one-sided."""
    rank.window("cells", 1, torch.int32)
    rank.sync()


def hunted(program, root_seed, **order):
    """The hunt, and every plan of it with its explorer."""
    tried = []
    order.setdefault("plans_max", 60)
    result = hunt(
        Order(program, root_seed, **order),
        before_plan=lambda plan, name: tried.append((name, plan)),
    )
    return result, [entry for entry in tried if entry[0] != "probe"]


def test_the_same_root_seed_hunts_the_same_plans():
    first, plans = hunted(ring, 5)
    second, again = hunted(ring, 5)
    assert plans == again
    assert first.statistics.identities == second.statistics.identities
    assert first.finding is None
    assert first.outcome is None


def test_other_root_seeds_hunt_other_plans():
    assert hunted(ring, 5)[1] != hunted(ring, 6)[1]


def test_the_same_root_seed_finds_the_same():
    first, _ = hunted(unfenced, 9)
    second, _ = hunted(unfenced, 9)
    assert first.finding == second.finding
    assert first.outcome.plan == second.outcome.plan
    assert first.statistics.plans == second.statistics.plans


def test_the_portfolio_starts_with_the_default_run_of_the_defaults():
    _, tried = hunted(ring, 5, plans_max=20)
    assert tried[0] == ("default", Plan(scenario="ring", params=ring.params(), ranks=4))
    assert {name for name, _ in tried} >= {
        "default", "held", "pct1", "pct2", "pct3", "pos", "random_walk", "slow_rank", "pause",
        "deviations", "faults",
    }


def test_the_plan_is_announced_before_it_runs():
    order = []
    hunt(
        Order(ring, 1, plans_max=5),
        on_plan=lambda statistics: order.append(("after", statistics.plans)),
        before_plan=lambda plan, name: order.append(("before", len(order) // 2 + 1)),
    )
    assert order == [(when, n) for n in range(1, 6) for when in ("before", "after")]


@pytest.mark.parametrize("root_seed", range(5))
def test_a_missing_fence_is_found_and_needs_no_explorer_any_more(root_seed):
    result, _ = hunted(unfenced, root_seed, plans_max=200)
    assert result.finding.name == "integrity/unwritten_memory"
    again = run(result.outcome.plan, scenario=unfenced)
    assert again.finds(result.finding.identity) == result.finding
    assert again.run.identity() == result.outcome.run.identity()
    assert result.outcome.plan.schedule


def test_eager_delivery_knows_no_holds():
    result, tried = hunted(unfenced, 1, plans_max=80, delivery="eager")
    assert all(plan.visibility.delivery == "eager" for _, plan in tried)
    assert not any(isinstance(d, Hold) for _, plan in tried for d in plan.schedule)
    if result.outcome is not None:
        assert {type(d) for d in result.outcome.plan.schedule} <= {Preempt}


def test_until_passes_over_what_is_not_wanted():
    first, _ = hunted(unfenced, 1, plans_max=400)
    wanted = (first.finding.rank + 1) % 4
    result, _ = hunted(unfenced, 1, plans_max=400, until=Target("integrity", rank=wanted))
    assert result.finding.rank == wanted
    assert result.statistics.plans > first.statistics.plans
    missed, tried = hunted(raising, 1, plans_max=3, until=Target("deadlock", rank=1))
    assert missed.finding is None
    assert len(tried) == 3
    assert missed.statistics.passed_over["exceptions/value_error"] == 3


@pytest.mark.parametrize(("target", "meets"), [
    (Target(), True),
    (Target("exceptions"), True),
    (Target("value_error"), True),
    (Target("exceptions/value_error"), True),
    (Target("exceptions/value_error", rank=1), True),
    (Target("", rank=2), False),
    (Target("deadlock"), False),
])
def test_targets_name_checker_kind_and_rank(target, meets):
    plan = Plan(scenario="raising", params=raising.params(), ranks=4)
    finding = run(plan, scenario=raising).findings[0]
    assert target.meets(finding) is meets


def test_named_faults_fire_and_are_found():
    result, tried = hunted(ring, 3, faults=("dropped_fence",), plans_max=100)
    assert result.finding.name == "integrity/unwritten_memory"
    assert result.statistics.fired["dropped_fence"] > 0
    assert not result.vacuous
    assert all(plan.faults for _, plan in tried)


def test_timing_faults_fire_in_lowered_form():
    for name in ("late_put", "late_notify", "slow_rank", "pause", "preemption"):
        result, tried = hunted(ring, 3, faults=(name,), plans_max=12)
        assert result.finding is None
        assert result.statistics.fired[name] > 0
        assert not result.vacuous
        assert all(not plan.faults for _, plan in tried)


def test_a_hunt_in_which_nothing_fired_is_vacuous(monkeypatch):
    late = fault_type("late_put")
    monkeypatch.setattr(late, "lower", lambda self, plan, scenario: self.without(plan))
    result, _ = hunted(ring, 3, faults=("late_put",), plans_max=6)
    assert result.vacuous
    assert result.statistics.unfired == 6


def test_several_faults_are_not_vacuous_when_one_fires(monkeypatch):
    late = fault_type("late_put")
    monkeypatch.setattr(late, "lower", lambda self, plan, scenario: self.without(plan))
    result, _ = hunted(ring, 3, faults=("late_put", "late_notify"), plans_max=6)
    assert not result.vacuous
    assert result.statistics.fired["late_notify"] > 0


def test_a_fault_that_has_nothing_to_hit_is_a_usage_error():
    with pytest.raises(UsageError, match="dropped_quiet: nothing in quietless for it to hit"):
        hunted(quietless, 1, faults=("dropped_quiet",))


def test_unknown_names_offer_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'dropped_fence'"):
        fault_type("droped_fence")
    with pytest.raises(UnknownName, match="no mutant of ring is called 'x'"):
        hunted(ring, 1, bug="x")


def test_late_deliveries_preemptions_and_slow_ranks_are_counted():
    fired = hunted(ring, 5)[0].statistics.fired
    for name in ("late_put", "late_notify", "preemption", "slow_rank", "pause", "crash"):
        assert fired[name] > 0, name


@pytest.mark.parametrize(("schedule", "puts", "notifies"), [
    ((), 0, 0),
    ((Hold(0, 2),), 1, 0),
    ((Hold(1),), 0, 1),
    ((Hold(0), Hold(2), Hold(1)), 2, 0),  # the notify only waits for its fence
])
def test_late_operations_are_counted_by_kind(schedule, puts, notifies):
    plan = Plan(scenario="ring", params=ring.params(), ranks=2, schedule=schedule)
    outcome = run(plan, scenario=ring)
    late = late_operations(outcome)
    assert (late["late_put"], late["late_notify"] > 0) == (puts, notifies > 0)


def test_limits_are_kept(monkeypatch):
    assert hunted(ring, 1, plans_max=7)[0].statistics.plans == 7
    assert hunted(ring, 1, plans_max=0)[0].statistics.plans == 0
    clock = iter(range(10_000))
    monkeypatch.setattr("harness.hunt.now", lambda: float(next(clock)))
    result, _ = hunted(ring, 1, plans_max=None, seconds=40.0)
    assert 0 < result.statistics.plans <= 40


def test_worlds_can_be_narrowed():
    _, tried = hunted(ring, 1, ranks=(6, 7), plans_max=60)
    assert {plan.ranks for _, plan in tried} == {6, 7}


@scenario(reference=lambda size: [torch.ones(4)] * size)
def same_value_twice(rank):
    slot = rank.window("slot", 4, torch.float32)
    rank.put(slot, 0, torch.ones(4))
    rank.barrier()
    return rank.remote_load(slot, 0, 0, 4)


@scenario(reference=lambda size: [values((r - 1) % size, 2) for r in range(size)])
def unfenced_ring(rank):
    inbox = rank.window("inbox", 2, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(inbox, right, values(rank.index, 2))
    rank.notify(flag, right, 0, 1)
    rank.wait(flag, 0, 1)
    return rank.load(inbox, 0, 2)


def test_a_race_that_no_value_shows_is_found_in_the_default_run():
    found = hunt(Order(same_value_twice, 1, plans_max=20))
    assert found.finding.name == "races/unordered_write"
    assert found.statistics.shares["default"] == 1
    assert found.outcome.plan.schedule == ()


def test_a_race_with_an_effect_is_shown_with_it():
    found = hunt(Order(unfenced_ring, 1, plans_max=20))
    assert (found.finding.name, found.explorer) == ("integrity/unwritten_memory", "race_shown")
    assert found.statistics.plans == 2
    assert len(found.outcome.plan.schedule) == 1
    assert "races/unordered_read" in [finding.name for finding in found.outcome.findings]


def test_until_may_wait_for_the_race_itself():
    found = hunt(Order(unfenced_ring, 1, plans_max=20, until=Target("races")))
    assert (found.finding.name, found.outcome.plan.schedule) == ("races/unordered_read", ())


def test_looking_for_what_a_race_does_keeps_to_the_number_of_plans():
    found = hunt(Order(unfenced_ring, 1, plans_max=1))
    assert (found.finding.name, found.statistics.plans) == ("races/unordered_read", 1)


def test_every_plan_is_announced_before_it_runs_also_those_that_show_a_race():
    announced, counted = [], []
    found = hunt(
        Order(unfenced_ring, 1, plans_max=20),
        on_plan=lambda statistics: counted.append(statistics.plans),
        before_plan=lambda plan, explorer: announced.append(explorer),
    )
    assert found.statistics.plans == 2
    assert announced == ["default", "race_shown"]
    assert counted == [1, 2]
