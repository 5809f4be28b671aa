"""The minimiser: the smallest plan with the same finding, within its budget, proven or not."""

from typing import Annotated

import msgspec
import pytest
import torch
from msgspec import Meta, Struct

from faults.environment import Crash
from faults.ordering import DroppedFence
from harness import Hold, PeerLost, Plan, Preempt, Scenario, registry, run, scenario, values
from harness.hunt import Order, Target, hunt
from harness.minimise import minimise
from harness.proof import lateness, prove
from harness.run import execute_plan


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
def unfenced(rank, n: Annotated[int, Meta(ge=1, le=64)] = 4):
    """Wrong: the notify may overtake the put."""
    return exchange(rank, n, fenced=False)


@scenario(reference=from_left)
def ring(rank, n: Annotated[int, Meta(ge=1, le=64)] = 4):
    """Right."""
    return exchange(rank, n, fenced=True)


@scenario(reference=lambda size: [None] * size, ranks=(1, 8))
def needs_four(rank):
    """Rank 3 of four or more raises."""
    rank.sync()
    if rank.index == 3:
        raise ValueError("rank 3")


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    steps: Annotated[tuple[Annotated[int, Meta(ge=0, le=9)], ...], Meta(min_length=1, max_length=6)]


def script_program(rank, *steps):
    rank.sync()
    if 7 in steps:
        raise ValueError("seven")


def script_host(world, params):
    for index in range(world.size):
        world.dispatch(script_program, *params.steps, device=index)


script = Scenario(
    name="script", host=script_host, params=Script, ranks=(1, 4),
    reference=lambda params, size: {"result": [None] * size},
)


@scenario(reference=lambda size: [torch.ones(1)] * size, ranks=(2, 6))
def gathered(rank):
    """Rank 0 waits for all, and passes off what it has when one of them is lost."""
    cells = rank.window("cells", 1, torch.int32)
    if rank.index:
        rank.notify(cells, 0, 0, 1)
        return torch.ones(1)
    try:
        rank.wait(cells, 0, rank.size - 1)
    except PeerLost:
        return torch.zeros(1)
    return torch.ones(1)


def late_plan(ranks, n=9):
    """Every put late, and Preempts that change nothing of that."""
    plan = Plan(scenario="unfenced", params=unfenced.params(n=n), ranks=ranks)
    puts = [e.number for e in execute_plan(plan, unfenced).events if e.kind == "put"]
    return msgspec.structs.replace(
        plan, schedule=(*(Hold(op) for op in puts), Preempt(1), Preempt(2))
    )


def minimised(plan, program, **more):
    outcome = run(plan, scenario=program)
    finding = outcome.findings[0]
    small = minimise(outcome, finding, program, **{"seconds": PATIENCE, **more})
    assert small.finding.identity == finding.identity
    again = run(small.outcome.plan, scenario=program)
    assert again.finds(finding.identity) == small.finding
    return small


PATIENCE = 600.0  # seconds: no clock has a part in what these searches find
LEAST = Plan(scenario="unfenced", params=unfenced.params(n=1), ranks=2, schedule=(Hold(0),))


def test_a_missing_fence_at_eight_ranks_shrinks_to_two_and_is_proven():
    small = minimised(late_plan(8), unfenced, seconds=PATIENCE)
    assert small.outcome.plan == LEAST
    assert small.proven
    assert small.why == (
        "the only smaller plan does not show it (the same program with fewer deviations)"
    )


@pytest.mark.parametrize("root_seed", range(8))
def test_whatever_explorer_found_it(root_seed):
    found = hunt(Order(unfenced, root_seed, ranks=(5, 8), plans_max=400))
    small = minimise(found.outcome, found.finding, unfenced, seconds=PATIENCE)
    assert small.outcome.plan == LEAST
    assert small.proven
    assert small.finding.identity == found.finding.identity


def test_no_budget_returns_the_plan_as_it_was():
    plan = late_plan(4)
    small = minimised(plan, unfenced, seconds=0.0)
    assert small.outcome.plan == plan
    assert not small.proven
    assert small.runs == 0
    assert small.why == "the budget of 0 s was spent"


def test_a_budget_of_runs_is_kept_and_needs_no_clock():
    found = hunt(Order(unfenced, 1, plans_max=200))
    small = [minimise(found.outcome, found.finding, unfenced, runs_max=runs) for runs in (0, 5, 5)]
    assert [one.runs for one in small] == [0, 5, 5]
    assert small[0].outcome.plan == found.outcome.plan
    assert small[1].outcome.plan == small[2].outcome.plan
    assert [one.why for one in small[:2]] == [
        "the budget of 0 runs was spent", "the budget of 5 runs was spent"
    ]
    assert not any(one.proven for one in small)


def test_the_best_plan_so_far_is_kept_when_the_time_is_up(monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr("harness.minimise.now", lambda: float(next(clock)))
    small = minimised(late_plan(8), unfenced, seconds=6.0)
    assert small.outcome.plan.ranks == 2
    assert not small.proven
    assert 0 < small.runs <= 6


def test_the_smallest_world_that_shows_it_is_found_and_proven():
    small = minimised(Plan(scenario="needs_four", params=needs_four.params(), ranks=8), needs_four)
    assert small.outcome.plan.ranks == 4
    assert small.proven
    assert "fewer ranks with up to 1 deviation)" in small.why


def test_a_smaller_world_that_needs_a_schedule_beats_a_larger_one_without():
    @scenario(reference=lambda size: [None] * size, ranks=(2, 6))
    def overtaken(rank):
        """In a world of two only an order other than the default one shows it."""
        cells = rank.window("cells", 1, torch.int32)
        rank.notify(cells, 0, 0, 1)
        if rank.index == 0:
            rank.wait(cells, 0, 1)
            seen = int(rank.load(cells, 0, 1)[0])
            if rank.size > 2 or seen == 1:
                raise ValueError("overtaken")

    small = minimised(Plan(scenario="o", params=overtaken.params(), ranks=6), overtaken)
    assert small.outcome.plan.ranks == 2
    assert len(small.outcome.plan.schedule) == 1


def test_sequences_lose_what_is_not_needed():
    small = minimised(
        Plan(scenario="script", params=Script((3, 1, 7, 9, 2)), ranks=3), script
    )
    assert small.outcome.plan == Plan(scenario="script", params=Script((7,)), ranks=1)
    assert small.proven
    assert "params one step smaller with up to 1 deviation" in small.why


def test_a_fault_that_is_not_needed_goes():
    plan = msgspec.structs.replace(late_plan(3), faults=(Crash(rank=2, nth=5),))
    assert run(plan, scenario=unfenced).run.fired == [1]
    small = minimised(plan, unfenced, seconds=PATIENCE)
    assert small.outcome.plan == LEAST


def test_a_fault_that_is_needed_stays_at_its_simplest_place():
    plan = Plan(
        scenario="gathered", params=gathered.params(), ranks=5, faults=(Crash(rank=4, nth=1),)
    )
    small = minimised(plan, gathered)
    assert small.finding.name == "integrity/wrong_value"
    assert small.outcome.plan.ranks == 2
    assert small.outcome.plan.faults == (Crash(rank=1, nth=1),)
    assert small.outcome.plan.schedule == ()
    assert small.outcome.run.fired == [1]
    assert small.proven
    assert "a fault fewer" in small.why


def test_a_bug_fault_keeps_its_hold():
    found = hunt(Order(ring, 3, faults=("dropped_fence",), plans_max=200))
    small = minimise(found.outcome, found.finding, ring, seconds=PATIENCE)
    plan = small.outcome.plan
    assert (plan.ranks, plan.params.n, plan.schedule) == (2, 1, (Hold(0),))
    assert plan.faults == (DroppedFence(rank=0, nth=0),)


def test_preempts_shrink_to_one():
    @scenario(reference=lambda size: [torch.ones(1)] * size, ranks=(2, 4))
    def unordered(rank):
        """The last rank stores, the others read without waiting for it."""
        data = rank.window("data", 1, torch.float32, init="zero")
        last = rank.size - 1
        if rank.index == last:
            rank.store(data, torch.ones(1))
            return torch.ones(1)
        return rank.remote_load(data, last, 0, 1)

    plan = Plan(
        scenario="u", params=unordered.params(), ranks=4,
        schedule=tuple(Preempt(at) for at in range(0, 9)),
    )
    small = minimised(plan, unordered, seconds=PATIENCE)
    assert small.outcome.plan.ranks == 2
    assert [type(d) for d in small.outcome.plan.schedule] == [Preempt]
    assert small.proven


# The proof itself ---------------------------------------------------------------------------------


def attempt_of(program, shows):
    tried = []

    def attempt(plan):
        tried.append(plan)
        outcome = run(plan, scenario=program)
        return outcome, shows(outcome)

    return attempt, tried


def test_one_deviation_reaches_every_order_that_one_deviation_can():
    """All that any single Hold or Preempt with whatever numbers gives is among the plans tried."""
    plan = Plan(scenario="unfenced", params=unfenced.params(n=1), ranks=2)
    attempt, tried = attempt_of(unfenced, lambda outcome: False)
    proof = prove(plan, [plan], attempt)
    assert proof.proven
    covered = {run(p, scenario=unfenced).run.identity() for p in tried}
    default = execute_plan(plan, unfenced)
    events = len(default.raw)
    singles = [Hold(op, until) for op in range(default.operations + 2) for until in range(events)]
    singles += [Preempt(at, to) for at in range(default.points + 5) for to in range(9)]
    reached = {
        execute_plan(msgspec.structs.replace(plan, schedule=(d,)), unfenced).identity()
        for d in singles
    }
    assert reached <= covered
    assert len(reached) > 20


def test_two_deviations_reach_every_order_that_two_can():
    plan = Plan(scenario="unfenced", params=unfenced.params(n=1), ranks=2)
    attempt, tried = attempt_of(unfenced, lambda outcome: False)
    two = msgspec.structs.replace(plan, schedule=(Hold(0), Hold(1)))
    proof = prove(two, [plan], attempt)
    assert proof.proven
    covered = {run(p, scenario=unfenced).run.identity() for p in tried}
    source = hunt(Order(unfenced, 1, ranks=(2, 2), plans_max=1)).statistics
    assert source.plans == 1
    from harness.ambient import generator

    draw = generator("two").randrange
    default = execute_plan(plan, unfenced)

    def single():
        if draw(2):
            return Hold(draw(default.operations), draw(12))
        return Preempt(draw(default.points + 3), draw(5))

    for _ in range(300):
        pair = msgspec.structs.replace(plan, schedule=(single(), single()))
        assert execute_plan(pair, unfenced).identity() in covered


def test_a_smaller_plan_is_handed_back():
    plan = late_plan(2, n=1)
    attempt, _ = attempt_of(unfenced, lambda outcome: bool(outcome.findings))
    proof = prove(plan, [], attempt)
    assert not proof.proven
    assert len(proof.smaller.plan.schedule) == 1


def test_too_many_plans_are_no_proof():
    plan = late_plan(8)
    attempt, tried = attempt_of(unfenced, lambda outcome: False)
    proof = prove(plan, [], attempt)
    assert not proof.proven
    assert proof.smaller is None
    assert proof.why == "more than 20000 smaller plans; not all were tried"
    assert len(tried) == 1


def test_nothing_smaller_is_said_so():
    plan = Plan(scenario="needs_four", params=needs_four.params(), ranks=1)
    attempt, tried = attempt_of(needs_four, lambda outcome: False)
    proof = prove(plan, [], attempt)
    assert (proof.proven, proof.why, tried) == (True, "there is no smaller plan", [])


def test_lateness_counts_the_events_between():
    plan = Plan(scenario="unfenced", params=unfenced.params(n=1), ranks=2)
    for until in (0, 1, 2, 3):
        held = msgspec.structs.replace(plan, schedule=(Hold(0, until),) if until else ())
        assert lateness(execute_plan(held, unfenced).raw, 0, 2) == until


def test_a_fault_moves_to_a_place_that_a_smaller_program_has():
    """Its nth counts operations of the larger program; the smaller one has fewer of them."""
    rung = registry.find("collectives.dynamic_rank_count")
    fault = registry.faults()["wrong_peer"](rank=2, nth=15)
    plan = Plan(scenario=rung.name, params=rung.params(), ranks=4, faults=(fault,))
    small = minimised(plan, rung, seconds=PATIENCE)
    assert small.proven
    assert small.outcome.plan.ranks == 2
    assert len(small.outcome.plan.faults) == 1
    assert small.outcome.plan.faults[0] != fault


def test_a_barrier_of_neighbours_shrinks_from_eight_ranks_to_three():
    """NaNs of unwritten memory have spread in the large world; their origin is the identity."""
    mesh = registry.find("collectives.allreduce_mesh")
    plan = Plan(scenario=mesh.name, params=mesh.params(), ranks=8, bug="neighbours_only")
    small = minimised(plan, mesh, seconds=PATIENCE)
    assert small.proven
    assert small.outcome.plan.ranks == 3
    assert small.outcome.plan.params.sizes == (1,)


@scenario(reference=lambda size: [None] + [[5.0] * 4] * (size - 1))
def last_element_first(rank):
    """Wrong only where a put may tear: the last element is taken for the whole row."""
    window = rank.window("w", 4, torch.float32, init="zero")
    for peer in range(1, rank.size):
        if rank.index == 0:
            rank.put(window, peer, torch.full((4,), 5.0))
    if rank.index == 0:
        return None
    while rank.load(window, 0, 1).item() != 5.0:
        pass
    return rank.load(window, 0, 4).tolist()


def test_torn_operations_stay_where_they_are_needed_and_are_as_large_as_can_be():
    found = hunt(Order(last_element_first, 1, ranks=(3, 3), torn=4, plans_max=200))
    assert found.finding is not None
    small = minimise(found.outcome, found.finding, last_element_first, seconds=PATIENCE)
    assert (small.outcome.plan.ranks, small.outcome.plan.visibility.torn) == (2, 8)
    assert len(small.outcome.plan.schedule) == 1
    wrong = Target("integrity")  # polling for data is a race with whole puts too
    whole = hunt(Order(last_element_first, 1, torn=0, plans_max=200, until=wrong))
    assert whole.finding is None
    now_and_then = hunt(Order(last_element_first, 1, plans_max=200, until=wrong))
    assert now_and_then.finding is not None


def test_torn_operations_go_where_they_are_not_needed():
    found = hunt(Order(unfenced, 1, ranks=(2, 2), torn=4, plans_max=200))
    small = minimise(found.outcome, found.finding, unfenced, seconds=PATIENCE)
    assert small.outcome.plan.visibility.torn == 0
    assert small.proven
