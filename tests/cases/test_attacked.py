"""What an attack on the checkers found: wrong culprits, false alarms and misses, each as a program."""

from __future__ import annotations

import pytest
import torch

from harness import AtomicType, Plan, Scenario, run
from harness.plan import Visibility
from harness.run import explore
from harness.scenario import NoParams
from harness.schedule.random_walk import RandomWalk

INT, F32 = torch.int32, torch.float32


def scenario_of(program, lanes=1):
    def host(world, params):
        data = world.alloc([8], F32, name="data", init="zero")
        cells = world.alloc([8], INT, name="cells")
        for rank in range(world.size):
            world.dispatch(program, data, cells, device=rank, lanes=lanes)
        return {}

    return Scenario(name=program.__name__, host=host, reference=lambda params, size: {}, ranks=(1, 8))


def judged(program, ranks, lanes=1, torn=0, **how):
    plan = Plan(
        scenario=program.__name__, params=NoParams(), ranks=ranks, visibility=Visibility(torn=torn)
    )
    return run(plan, scenario=scenario_of(program, lanes), **how)


def slots_of_three(rank, data, cells):
    for epoch in (1, 2):
        for peer in range(rank.size):
            if peer != rank.index and (rank.index, peer, epoch) != (0, 1, 2):
                rank.notify(cells, peer, rank.index, 1)
        for source in range(rank.size):
            if source != rank.index:
                rank.wait(cells, source, epoch)


def taken_back_one_by_one(rank, data, cells):
    if rank.index == 0:
        for _ in range(4):
            rank.wait(cells, 0, 1)
            rank.notify(cells, 0, 0, -1)
            rank.quiet()
    else:
        for turn in range(2):
            if (rank.index, turn) != (2, 1):
                rank.notify(cells, 0, 0, 1)


def two_of_three_in_a_circle(rank, data, cells):
    if rank.index < 2:
        rank.wait(cells, 0, 1)
        rank.notify(cells, 1 - rank.index, 0, 1)


def lanes_of_one_rank_in_a_circle(rank, data, cells):
    if rank.index == 0:
        rank.wait(cells, rank.lane, 1)
        rank.notify(cells, 0, 1 - rank.lane, 1)


@pytest.mark.parametrize(
    ("program", "ranks", "lanes", "kind", "culprit"),
    [
        (slots_of_three, 3, 1, "missing_notify", 0),
        (taken_back_one_by_one, 3, 1, "missing_notify", 2),
        (two_of_three_in_a_circle, 3, 1, "cycle", 0),
        (lanes_of_one_rank_in_a_circle, 2, 2, "cycle", 0),
    ],
)
def test_the_hang_is_named(program, ranks, lanes, kind, culprit):
    (finding,) = judged(program, ranks, lanes).findings
    assert (finding.name, finding.rank) == (f"deadlock/{kind}", culprit)


def polls_all_flags(rank, data, cells):
    if rank.index:
        rank.put(data, 0, torch.ones(1), rank.index)
        rank.fence()
        rank.notify(cells, 0, rank.index, 1)
    else:
        while rank.load(cells, 0, rank.size)[1:].sum() < rank.size - 1:
            pass
        rank.load(data, 1, rank.size - 1)


def test_a_notify_after_a_poll_of_many_flags_is_no_race():
    assert judged(polls_all_flags, 3, races=True).findings == ()


def reads_int_sums(rank, data, cells):
    if rank.index == 0:
        rank.put(cells, 1, torch.ones(8, dtype=INT), atomic=AtomicType.Add)
    else:
        rank.load(cells, 0, 8)


def test_a_read_beside_an_atomic_put_of_integers_is_a_race():
    (finding,) = judged(reads_int_sums, 2, races=True).findings
    assert finding.name == "races/unordered_read"


def writes_its_source(rank, data, cells):
    tensor = torch.zeros(4)
    rank.put_nbi(data, 0, tensor)
    rank.fence()
    tensor.fill_(1.0)
    rank.quiet()


def test_a_write_between_two_pieces_is_seen():
    found = scenario_of(writes_its_source)
    plan = Plan(scenario="x", params=NoParams(), ranks=1, visibility=Visibility(torn=4))
    for seed in range(30):
        outcome = explore(plan, found, RandomWalk(seed))
        assert [f.name for f in outcome.findings] == ["lifetime/tensor_written_in_flight"], seed


def gets_nothing(rank, data, cells):
    rank.get_nbi(torch.zeros(0), 0, data)
    rank.quiet()


def test_a_tensor_of_no_elements_can_be_filled():
    assert judged(gets_nothing, 1).findings == ()


def makes_one_alike(rank, data, cells):
    tensor = torch.zeros(4)
    rank.get_nbi(tensor, 0, data)
    torch.zeros_like(tensor)
    tensor.new_empty(3)
    rank.quiet()


def test_asking_for_a_shape_is_no_read():
    assert judged(makes_one_alike, 1, watch=True).findings == ()


def credits_after_a_set_up_barrier(rank, data, cells):
    rank.barrier()
    if rank.index == 1:
        rank.notify(cells, 0, 0, 2)
    for turn in range(3):
        if rank.index == 0:
            rank.wait(cells, 0, 1)
            rank.notify(cells, 0, 0, -1)
            rank.quiet()
            rank.notify(cells, 1, 1, 1)
        elif rank.index == 1:
            rank.wait(cells, 1, turn + 1)
            rank.notify(cells, 0, 0, 1)


def test_first_credits_after_a_barrier_may_stay():
    assert judged(credits_after_a_set_up_barrier, 2).findings == ()


def prepare(rank, cells):
    if rank.index == 1:
        rank.notify(cells, 0, 0, 1)


def produce(rank, cells):
    if rank.index == 0:
        rank.wait(cells, 0, 1)
        rank.notify(cells, 0, 0, -1)


def consume(rank, cells):
    if rank.index == 1:
        rank.notify(cells, 0, 0, 1)


def consume_twice(rank, cells):
    if rank.index == 1:
        rank.notify(cells, 0, 0, 2)


def phased(*programs):
    def host(world, params):
        cells = world.alloc([1], INT, name="cells")
        for program in programs:
            for rank in range(world.size):
                world.dispatch(program, cells, device=rank)
        return {}

    made = Scenario(name="phased", host=host, reference=lambda params, size: {}, ranks=(1, 8))
    return run(Plan(scenario="phased", params=NoParams(), ranks=2), scenario=made)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_credit_that_another_program_gives_back_is_no_leak(turns):
    assert phased(prepare, *(produce, consume) * turns).findings == ()
    assert phased(prepare, *(produce, consume) * turns, produce).findings == ()
    assert phased(consume, *(produce, consume) * turns).findings == ()


def test_a_program_that_gives_more_each_time_leaks():
    (finding,) = phased(prepare, *(produce, consume_twice) * 3).findings
    assert (finding.name, finding.rank) == ("deadlock/signal_leak", 1)


def lanes_take_turns(rank, data, cells):
    for turn in range(3):
        if rank.lane == (rank.index + turn) % 2:
            rank.window(f"w{turn}", 1, INT)
            rank.barrier()


def test_ranks_may_use_different_lanes_for_their_collectives():
    assert judged(lanes_take_turns, 2, lanes=2).findings == ()


def crossed_groups(rank, data, cells):
    first, second = {0: ([0, 1], [0, 2]), 1: ([1, 2], [0, 1]), 2: ([0, 2], [1, 2])}[rank.index]
    rank.sync(first)
    rank.sync(second)


def test_groups_that_are_met_in_a_circle_are_a_cycle():
    (finding,) = judged(crossed_groups, 3).findings
    assert finding.name == "deadlock/cycle"
    assert "ranks 0, 1 and 2 wait for each other" in finding.message
    assert any("of group [0, 1]" in line for line in finding.graph)


def releases_all_but_one(rank, data, cells):
    """A master releases its workers round by round, and forgets the last one in round 1."""
    for turn in range(1, 4):
        if rank.index == 0:
            for worker in range(1, rank.size):
                if (turn, worker) != (2, rank.size - 1):
                    rank.notify(cells, worker, 0, 1)
            rank.wait(cells, 1, turn * (rank.size - 1))
        else:
            rank.wait(cells, 0, turn)
            rank.notify(cells, 0, 1, 1)


@pytest.mark.parametrize("size", [3, 4])
def test_what_was_left_out_in_step_is_no_circle(size):
    (finding,) = judged(releases_all_but_one, size).findings
    assert (finding.name, finding.rank) == ("deadlock/missing_notify", 0)
    assert f"rank {size - 1} is blocked" in finding.message


def polls_with_get(rank, data, cells):
    if rank.index:
        rank.put(data, 0, torch.ones(1), rank.index)
        rank.fence()
        rank.notify(cells, 0, rank.index, 1)
    else:
        mine = rank.buffer(rank.size, INT)
        seen = 0
        while seen < rank.size - 1:
            rank.get(mine, 0, cells)
            seen = int(rank.load(mine, 1, rank.size - 1).sum())
        rank.load(data, 1, rank.size - 1)


def test_a_get_of_many_flags_acquires_as_a_load_does():
    assert judged(polls_with_get, 3, races=True).findings == ()


def flags_in_bytes(rank, raw):
    flags = raw.view([4], INT, 64)
    data = raw.view([8], F32, 0)
    if rank.index:
        rank.put(data, 0, torch.ones(1), rank.index)
        rank.fence()
        rank.put(flags, 0, torch.ones(1, dtype=INT), rank.index)
    else:
        for source in range(1, rank.size):
            while rank.load(flags, source, 1).item() < 1:
                pass
        rank.load(data, 1, rank.size - 1)


def test_flags_may_lie_in_a_window_of_bytes():
    def host(world, params):
        raw = world.alloc(256, name="raw")
        for rank in range(world.size):
            world.dispatch(flags_in_bytes, raw, device=rank)
        return {}

    made = Scenario(name="bytes", host=host, reference=lambda params, size: {}, ranks=(1, 8))
    plan = Plan(scenario="bytes", params=NoParams(), ranks=3)
    assert run(plan, scenario=made, races=True).findings == ()


def puts_lazily_negated(rank, data, cells):
    if rank.index == 0:
        rank.put(data, 1, torch._neg_view(torch.ones(2)))
    rank.barrier()
    return rank.load(data, 0, 2).tolist()


def test_lazily_negated_values_arrive_negated():
    outcome = judged(puts_lazily_negated, 2)
    assert outcome.run.results[1] == [[-1.0, -1.0]]


def passes_on_what_is_still_to_come(rank, data, cells):
    tensor = torch.zeros(4)
    rank.get_nbi(tensor, 0, data)
    rank.put(data, 0, tensor, 4)
    rank.quiet()


def test_a_put_of_a_tensor_that_a_get_is_to_fill_is_found():
    (finding,) = judged(passes_on_what_is_still_to_come, 1).findings
    assert finding.name == "lifetime/tensor_read_in_flight"
    assert "rank 0 called rank.put at" in " ".join(finding.evidence)
