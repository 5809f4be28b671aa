"""Strategies stay within bounds and begin with the simplest; properties report like the CLI."""

import importlib.util
import sys
from typing import Annotated

import msgspec
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import Meta

from harness import Hold, Plan, Preempt, plans, run, scenario, values
from harness import property as rank_property
from harness.errors import UsageError
from harness.minimise import minimise
from harness.plan import to_wire
from harness.report.text import report
from harness.run import execute_plan
from harness.strategy import (
    DEVIATIONS_MAX,
    PropertyFailed,
    drawn,
    environment_faults,
    fault_counts,
    fault_values,
    ranks_of,
)

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


def from_left(size, n):
    return [values((rank - 1) % size, n) for rank in range(size)]


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


@scenario(reference=from_left)
def ring(rank, n: Annotated[int, Meta(ge=1, le=6)] = 3):
    """Right."""
    return exchange(rank, n, fenced=True)


@scenario(reference=from_left)
def unfenced(rank, n: Annotated[int, Meta(ge=1, le=6)] = 3):
    """Wrong: the notify may overtake the put."""
    return exchange(rank, n, fenced=False)


@scenario(reference=lambda size: [None] * size, ranks=(1, 1))
def silent(rank):
    """No operation at all."""


# Drawing ------------------------------------------------------------------------------------------


def test_draws_follow_from_the_stamp_alone():
    whole = st.lists(st.integers(), max_size=6)
    assert drawn(whole, 20, "a", 1) == drawn(whole, 20, "a", 1)
    assert drawn(whole, 20, "a", 1) != drawn(whole, 20, "a", 2)


def test_draws_do_not_depend_on_the_profile():
    whole = st.integers(0, 10**6)
    before = drawn(whole, 20, 5)
    held = settings.get_current_profile_name()
    settings.register_profile("odd", derandomize=True, max_examples=2, phases=[Phase.explicit])
    settings.load_profile("odd")
    try:
        assert drawn(whole, 20, 5) == before
    finally:
        settings.load_profile(held)


def test_draws_do_not_depend_on_imported_modules(tmp_path):
    whole = st.integers(0, 10**9)
    before = drawn(whole, 200, 5)
    file = tmp_path / "constants.py"
    numbers = [987_654_000 + n for n in range(300)]
    file.write_text(f"NUMBERS = {numbers!r}\n")
    spec = importlib.util.spec_from_file_location("rankfault_constants", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["rankfault_constants"] = module
    try:
        spec.loader.exec_module(module)
        assert drawn(whole, 200, 5) == before
        assert not set(before) & set(numbers)
    finally:
        del sys.modules["rankfault_constants"]


# Plans --------------------------------------------------------------------------------------------


@quick
@given(plans(ring, ranks=(3, 5)))
def test_plans_lie_within_all_bounds(plan):
    assert 3 <= plan.ranks <= 5
    assert 1 <= plan.params.n <= 6
    assert len(plan.schedule) <= DEVIATIONS_MAX
    default = execute_plan(msgspec.structs.replace(plan, schedule=()), ring)
    for deviation in plan.schedule:
        if isinstance(deviation, Hold):
            assert deviation.op < default.operations
        else:
            assert deviation.at < default.points
    assert all(type(fault) in environment_faults().values() for fault in plan.faults)
    assert all(fault.rank < plan.ranks for fault in plan.faults)
    to_wire(plan)


def test_the_simplest_plan_comes_first():
    first = drawn(plans(ring), 1, "any")[0]
    assert first == Plan(scenario="ring", params=ring.params(n=1), ranks=2)


def test_plans_reach_all_their_parts():
    found = drawn(plans(ring), 80, "parts")
    deviations = [deviation for plan in found for deviation in plan.schedule]
    assert {type(deviation) for deviation in deviations} == {Hold, Preempt}
    assert {plan.ranks for plan in found} == set(range(2, 9))
    assert any(plan.faults for plan in found)
    assert any(not plan.schedule for plan in found)


def test_parts_can_be_left_out():
    found = drawn(plans(ring, faults=False, schedule=False), 40, "bare")
    assert all(plan.faults == () and plan.schedule == () for plan in found)


def test_a_program_without_operations_has_plans():
    assert {plan.schedule for plan in drawn(plans(silent), 5, "silent")} == {()}


def test_worlds_outside_the_scenario_are_refused():
    assert ranks_of(ring, (4, 99)) == (4, 8)
    with pytest.raises(UsageError, match=r"ranks 9\.\.12: ring runs with 2\.\.8 ranks"):
        ranks_of(ring, (9, 12))


def test_faults_are_placed_only_where_they_can_hit():
    from faults.ordering import DroppedFence, DroppedQuiet

    plan = Plan(scenario="ring", params=ring.params(), ranks=3)
    assert fault_counts(plan, ring, DroppedFence) == [1, 1, 1]
    assert fault_values(plan, ring, DroppedQuiet) is None
    for fault in drawn(fault_values(plan, ring, DroppedFence), 10, "places"):
        outcome = run(msgspec.structs.replace(plan, faults=(fault,)), scenario=ring)
        assert outcome.run.fired[0] >= 1


# Properties ---------------------------------------------------------------------------------------


def test_a_property_holds_for_a_right_program():
    seen = []

    @rank_property(ring, max_examples=30)
    def right(outcome):
        seen.append(outcome.plan)

    right()
    assert len(seen) == 30
    assert right.__name__ == "right"


def test_a_property_of_a_wrong_program_fails_with_the_report():
    @rank_property(unfenced, max_examples=200)
    def right(outcome):
        pass

    with pytest.raises(PropertyFailed) as caught:
        right()
    text = str(caught.value)
    assert "unwritten_memory" in text
    assert caught.value.identity.startswith("integrity/unwritten_memory@")
    least = Plan(scenario="unfenced", params=unfenced.params(n=1), ranks=2, schedule=(Hold(0),))
    outcome = run(least, scenario=unfenced)
    small = minimise(outcome, outcome.findings[0], unfenced, seconds=600.0)
    expected = report(small.outcome, small.finding, unfenced, small)
    assert text.strip().splitlines()[0] == expected.splitlines()[0]
    assert "ranks = 2" in text


def test_an_assertion_of_the_body_fails_too_and_is_shrunk():
    @rank_property(ring, plans=plans(ring, faults=False, schedule=False), max_examples=100)
    def small(outcome):
        assert outcome.plan.params.n < 3, f"n={outcome.plan.params.n} P={outcome.plan.ranks}"

    with pytest.raises(AssertionError, match="n=3 P=2"):
        small()


def test_a_property_takes_one_argument():
    with pytest.raises(UsageError, match="two: a property takes one argument"):
        @rank_property(ring)
        def two(outcome, more):
            pass



def test_a_property_of_a_program_that_does_not_repeat_says_so():
    runs = []

    def expected(size, n):
        return [torch.zeros(1)] * size

    @scenario(reference=expected, ranks=(1, 8))
    def remembers(rank, n: Annotated[int, Meta(ge=1, le=64)] = 4):
        runs.append(rank.index)
        return torch.tensor([float(len(runs) % 37 == 5)])

    @rank_property(remembers, max_examples=20)
    def never_wrong(outcome):
        """Nothing more."""

    with pytest.raises(PropertyFailed) as failure:
        never_wrong()
    assert "not repeatable" in str(failure.value)
    assert "integrity/wrong_value" in str(failure.value)
