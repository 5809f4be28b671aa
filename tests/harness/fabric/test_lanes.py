"""Several lanes of a rank: own program counters, shared memory, fences and quiets of their own."""

from __future__ import annotations

import gc

import pytest
import torch

from harness import Hold, NotifyOp, Plan, Preempt, run, scenario
from harness.errors import DispatchError, PeerLost
from harness.fabric.execute import Job, execute
from harness.interpose import Die
from harness.plan import Fault


def with_lanes(program, ranks=2, *schedule, lanes=2, args=(), **job):
    def host(world):
        for index in range(world.size):
            world.dispatch(program, *args, device=index, lanes=lanes)

    return execute(Job(ranks, host, schedule=schedule, **job))


def kinds(record, lane):
    return [raw[1] for raw in record.raw if raw[0] == lane]


def test_each_lane_runs_the_program_with_its_own_number():
    record = with_lanes(lambda rank: (rank.index, rank.lane, rank.lanes, rank.size), 2, lanes=3)
    assert record.lanes == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert record.results == [
        [[(rank, lane, 3, 2) for lane in range(3)]] for rank in range(2)
    ]
    assert repr_of_ranks() == ["rank 1 lane 1 of 2, of 2", "rank 0 of 1"]


def repr_of_ranks():
    seen = []

    def program(rank):
        if (rank.index, rank.lane) in ((1, 1),):
            seen.append(repr(rank))

    with_lanes(program)
    with_lanes(lambda rank: seen.append(repr(rank)), 1, lanes=1)
    return seen


def test_ranks_may_have_different_numbers_of_lanes():
    def host(world):
        world.dispatch(lambda rank: rank.lane, device=0, lanes=3)
        world.dispatch(lambda rank: rank.lane, device=1)

    record = execute(Job(2, host))
    assert record.lanes == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert record.results == [[[0, 1, 2]], [0]]


def test_lanes_share_the_windows_of_their_rank_and_notify_each_other():
    def program(rank, data, cells):
        if rank.lane == 0:
            rank.store(data, torch.tensor([5.0 + rank.index]))
            rank.notify(cells, rank.index, 0, 1)
            return None
        rank.wait(cells, 0, 1)
        return rank.load(data, 0, 1).item()

    def host(world):
        data = world.alloc([1], torch.float32, name="data")
        cells = world.alloc([1], torch.int32, name="cells")
        for index in range(world.size):
            world.dispatch(program, data, cells, device=index, lanes=2)

    record = execute(Job(2, host))
    assert record.ended == "returned"
    assert record.results == [[[None, 5.0]], [[None, 6.0]]]


def test_the_next_dispatch_begins_when_all_lanes_have_ended():
    order = []

    def first(rank):
        cell = rank.window(f"cell{rank.lane}", 1, torch.int32)
        for _ in range(3 * rank.lane):
            rank.store(cell, 1)
        order.append(("first", rank.index, rank.lane))

    def second(rank):
        order.append(("second", rank.index, rank.lane))

    def host(world):
        for program, lanes in ((first, 2), (second, 3)):
            for index in range(world.size):
                world.dispatch(program, device=index, lanes=lanes)

    record = execute(Job(2, host))
    for rank in range(2):
        mine = [(what, lane) for what, index, lane in order if index == rank]
        assert {lane for what, lane in mine[:2]} == {0, 1}
        assert sorted(mine[2:]) == [("second", 0), ("second", 1), ("second", 2)]
    assert record.results[0] == [[None, None, None], [None, None, None]]
    assert kinds(record, 2) == ["join_arrive", "join"]
    assert [len(began) for began in record.dispatched] == [2] * 6


def quiets(rank, data, cells):
    """Lane 0 puts; lane 1 is quiet and tells the peer, which knows nothing of lane 0's put."""
    peer = 1 - rank.index
    if rank.index == 0:
        if rank.lane == 0:
            rank.put(data, peer, torch.tensor([7.0]))
            rank.notify(cells, 0, 0, 1)
        else:
            rank.wait(cells, 0, 1)
            rank.quiet()
            rank.notify(cells, 1, 0, 1)
        return None
    if rank.lane == 0:
        rank.wait(cells, 0, 1)
        return rank.load(data, 0, 1).item()
    return None


def quiets_host(world):
    data = world.alloc([1], torch.float32, name="data")
    cells = world.alloc([1], torch.int32, name="cells")
    for index in range(world.size):
        world.dispatch(quiets, data, cells, device=index, lanes=2)


def test_quiet_is_of_its_lane_only():
    put = next(r[7] for r in execute(Job(2, quiets_host)).raw if r[1] == "put")
    record = execute(Job(2, quiets_host, schedule=(Hold(put),)))
    kinds_in_order = [(raw[1], raw[7]) for raw in record.raw]
    assert kinds_in_order.index(("deliver", put)) > kinds_in_order.index(("quiet", -1))
    value = record.results[1][0][0]
    assert value != value or value != 7.0  # it read the poison


def test_fence_is_of_its_lane_only():
    def program(rank, data, cells):
        if rank.index == 0 and rank.lane == 0:
            rank.put(data, 1, torch.tensor([7.0]))
            rank.notify(cells, 0, 0, 1)
        elif rank.index == 0:
            rank.wait(cells, 0, 1)
            rank.fence()
            rank.notify(cells, 1, 0, 1)
        elif rank.lane == 0:
            rank.wait(cells, 0, 1)

    def host(world):
        data = world.alloc([1], torch.float32, name="data")
        cells = world.alloc([1], torch.int32, name="cells")
        for index in range(world.size):
            world.dispatch(program, data, cells, device=index, lanes=2)

    put = next(r[7] for r in execute(Job(2, host)).raw if r[1] == "put")
    record = execute(Job(2, host, schedule=(Hold(put),)))
    order = [(raw[1], raw[7]) for raw in record.raw]
    last_signal = max(n for n, (kind, _) in enumerate(order) if kind == "deliver" and _ != put)
    assert order.index(("deliver", put)) > last_signal


def test_one_lane_of_each_rank_makes_a_sync_whichever_it_is():
    def program(rank):
        if rank.lane == rank.index:
            rank.sync()
            return "met"
        return "passed"

    record = with_lanes(program)
    assert record.ended == "returned"
    assert record.results == [[["met", "passed"]], [["passed", "met"]]]


def test_a_preempt_can_choose_another_lane():
    def program(rank, cells):
        rank.store(cells, rank.lane + 1, rank.lane)

    def host(world):
        cells = world.alloc([2], torch.int32, name="cells")
        world.dispatch(program, cells, device=0, lanes=2)

    assert [r[0] for r in execute(Job(1, host)).raw] == [0, 1]
    assert [r[0] for r in execute(Job(1, host, schedule=(Preempt(0, 0),))).raw] == [1, 0]


class Kill(Fault, frozen=True, tag="test_kill"):
    """Kills the rank at its nth store."""

    family = "environment"

    def matches(self, op):
        return op.kind == "store"

    def rewrite(self, op):
        return Die()


@pytest.mark.parametrize("schedule", [(), (Preempt(0, 2),), (Preempt(1, 0), Preempt(2, 1))], ids=str)
def test_a_rank_dies_with_all_its_lanes(schedule):
    ended = []

    def program(rank, data, cells):
        try:
            if rank.lane == 0:
                rank.load(data, 0, 1)
                rank.store(data, 1.0)
            else:
                rank.wait(cells, 0, 1)
        finally:
            ended.append((rank.index, rank.lane))

    def host(world):
        data = world.alloc([1], torch.float32, name="data")
        cells = world.alloc([1], torch.int32, name="cells")
        for index in range(world.size):
            world.dispatch(program, data, cells, device=index, lanes=2)

    record = execute(Job(2, host, faults=(Kill(rank=0, nth=0),), schedule=schedule))
    assert record.dead == [0]
    assert kinds(record, 0)[-1] == kinds(record, 1)[-1] == "crash"
    assert record.peers_lost == [1]
    assert [type(f.error) for f in record.failures] == []
    assert sorted(ended) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert record.results[0] is None


def test_a_lane_that_waits_for_a_dead_rank_gets_peer_lost():
    def program(rank, data, cells):
        if rank.index == 0:
            rank.store(data, 1.0)
            return "late"
        try:
            rank.wait(cells, 0, 1)
        except PeerLost as lost:
            return lost.rank
        return "none"

    def host(world):
        data = world.alloc([1], torch.float32, name="data")
        cells = world.alloc([1], torch.int32, name="cells")
        for index in range(world.size):
            world.dispatch(program, data, cells, device=index, lanes=2)

    record = execute(Job(2, host, faults=(Kill(rank=0, nth=0),)))
    assert record.results[1] == [[0, 0]]


@pytest.mark.parametrize("lanes", [0, -1, 65, 1.5, True])
def test_wrong_numbers_of_lanes(lanes):
    def host(world):
        world.dispatch(lambda rank: None, device=0, lanes=lanes)

    record = execute(Job(1, host))
    assert type(record.failures[0].error) is DispatchError
    assert f"lanes={lanes!r} is outside 1..64" in str(record.failures[0].error)


@scenario(reference=lambda size: [[None, None]] * size, lanes=2)
def stuck_lane(rank):
    cells = None
    if rank.lane == 0:
        cells = rank.window("cells", 2, torch.int32)
    if rank.lane == 0 and rank.index == 1:
        rank.wait(cells, 0, 1)
    if rank.lane == 0 and rank.index == 0:
        rank.notify(cells, 1, 1, 1, op=NotifyOp.Set)


@scenario(reference=lambda size: [[None, None]] * size, lanes=2)
def lanes_in_a_circle(rank):
    if rank.lane == 0:
        cells = rank.window("cells", 2, torch.int32)
        if rank.index == 0:
            rank.wait(cells, 0, 1)
            rank.notify(cells, 1, 0, 1)
        else:
            rank.wait(cells, 0, 1)
            rank.notify(cells, 0, 0, 1)


def outcome(program, ranks=2, **more):
    plan = Plan(scenario=program.name, params=program.params(), ranks=ranks)
    return run(plan, scenario=program, **more)


def test_a_finding_names_the_lane():
    found = outcome(stuck_lane).findings
    assert [f.name for f in found] == ["deadlock/wrong_cell"]
    assert "rank 1 lane 0 is blocked in wait" in found[0].message


def test_a_cycle_of_lanes():
    found = outcome(lanes_in_a_circle).findings
    assert [f.name for f in found] == ["deadlock/cycle"]
    assert "rank 0 lane 0, rank 1 lane 0 wait for each other" in found[0].message


def test_a_world_of_lanes_goes_when_its_run_is_over():
    """No reference cycle keeps it for the garbage collector."""

    def program(rank):
        rank.window(f"w{rank.lane}", 1, torch.int32)
        rank.barrier() if rank.lane == 0 else rank.quiet()

    with_lanes(program)
    gc.collect()
    gc.disable()
    try:
        with_lanes(program)
        with_lanes(program, lanes=1)
        assert gc.collect() == 0
    finally:
        gc.enable()
