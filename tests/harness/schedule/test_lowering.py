"""Timing faults are lowered to deviations: together, in any order, and saved in that form only."""

import itertools

import pytest
import torch

from faults.timing import LateNotify, LatePut, Pause, Preemption, SlowRank
from harness import Hold, Plan, run, scenario, values
from harness.errors import PlanError
from harness.plan import encode
from harness.run import execute_plan, lowered

N = 2


@scenario(reference=lambda size: [values((rank - 1) % size, N) for rank in range(size)])
def ring(rank):
    """Put to the right, fence, notify; wait, load."""
    data = rank.window("data", N, torch.float32)
    cells = rank.window("cells", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(data, right, values(rank.index, N))
    rank.fence()
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(data, 0, N)


FAULTS = [
    LatePut(rank=1, until=3), LateNotify(rank=2), SlowRank(rank=0), Pause(rank=1, nth=4),
    Preemption(rank=0, nth=4),
]


def plan_with(*faults):
    return Plan(scenario="ring", params=ring.params(), ranks=3, faults=faults)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.tag())
def test_each_changes_the_run_and_is_saved_in_lowered_form(fault):
    default = execute_plan(plan_with(), ring)
    outcome = run(plan_with(fault), scenario=ring)
    assert outcome.run.identity() != default.identity()
    assert outcome.run.deviations_applied == len(outcome.plan.schedule) > 0
    assert outcome.plan.faults == ()
    assert fault.tag().encode() not in encode(outcome.plan)
    assert outcome.findings == ()
    again = run(outcome.plan, scenario=ring)
    assert again.run.identity() == outcome.run.identity()


@pytest.mark.parametrize("pair", [
    pytest.param(pair, id="+".join(fault.tag() for fault in pair))
    for pair in itertools.permutations(FAULTS, 2)
    if any(isinstance(fault, LatePut | LateNotify) for fault in pair)
])
def test_two_of_them_both_take_effect(pair):
    both = lowered(plan_with(*pair), ring)
    identities = {
        execute_plan(lowered(plan_with(*some), ring), ring).identity()
        for some in ((), pair[:1], pair[1:], pair)
    }
    assert len(identities) == 4
    assert both.faults == ()
    assert execute_plan(both, ring).deviations_applied == len(both.schedule)


def test_a_late_put_keeps_its_hold_beside_a_slow_rank():
    both = lowered(plan_with(FAULTS[0], FAULTS[2]), ring)
    put = next(
        e.number for e in execute_plan(both, ring).events if e.kind == "put" and e.owner == 1
    )
    assert put in {d.op for d in both.schedule if isinstance(d, Hold)}


@pytest.mark.parametrize("pair", list(itertools.combinations(FAULTS[2:], 2)))
def test_two_whole_orders_are_refused(pair):
    with pytest.raises(PlanError, match="name one of them"):
        run(plan_with(*pair), scenario=ring)


def test_a_place_that_does_not_exist_leaves_the_plan_alone():
    assert lowered(plan_with(LatePut(rank=1, nth=9)), ring) == plan_with()
    assert lowered(plan_with(Pause(rank=1, nth=900)), ring) == plan_with()
