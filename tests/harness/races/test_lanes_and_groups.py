"""Races between lanes of a rank, and what syncs of lanes and groups order."""

from __future__ import annotations

import pytest
import torch

from harness.fabric.execute import Job, execute
from harness.races.conflicts import Conflicts


def conflicts(program, ranks=2, lanes=2, windows=True):
    def host(world):
        data = world.alloc([8], torch.float32, name="data")
        cells = world.alloc([8], torch.int32, name="cells")
        for index in range(world.size):
            world.dispatch(program, data, cells, device=index, lanes=lanes)

    run = execute(Job(ranks, host))
    assert run.ended == "returned"
    return [
        (run.events[c.first.at].kind, c.first.lane, run.events[c.second.at].kind, c.second.lane)
        for c in Conflicts(run)
    ]


def two_lanes_one_element(rank, data, cells):
    rank.store(data, float(rank.lane), 0)


def own_elements(rank, data, cells):
    rank.store(data, float(rank.lane), rank.lane)


def handed_over(rank, data, cells):
    if rank.lane == 0:
        rank.store(data, 1.0, 0)
        rank.notify(cells, rank.index, 0, 1)
    else:
        rank.wait(cells, 0, 1)
        rank.store(data, 2.0, 0)


def one_lane_syncs(rank, data, cells):
    """As RMARaceBench's hybrid codes: lane 1's put is not complete by lane 0's barrier."""
    if rank.index == 0 and rank.lane == 1:
        rank.put(data, 1, torch.ones(1))
    elif rank.lane == 0:
        rank.barrier()
        if rank.index == 1:
            rank.load(data, 0, 1)


def syncing_lane_puts(rank, data, cells):
    if rank.lane == 0:
        if rank.index == 0:
            rank.put(data, 1, torch.ones(1))
        rank.barrier()
        if rank.index == 1:
            rank.load(data, 0, 1)


def lane_told_before_the_sync(rank, data, cells):
    """Lane 1 completes its put and tells lane 0, which then syncs for both."""
    if rank.lane == 1:
        if rank.index == 0:
            rank.put(data, 1, torch.ones(1))
            rank.quiet()
        rank.notify(cells, rank.index, 0, 1)
    else:
        rank.wait(cells, 0, 1)
        rank.sync()
        if rank.index == 1:
            rank.load(data, 0, 1)


def reader_is_another_lane(rank, data, cells):
    """The barrier lets lane 0 know, not lane 1, which reads."""
    if rank.index == 0 and rank.lane == 0:
        rank.put(data, 1, torch.ones(1))
    if rank.lane == 0:
        rank.barrier()
    elif rank.index == 1:
        rank.load(data, 0, 1)


def quiet_of_the_other_lane(rank, data, cells):
    if rank.index == 0:
        if rank.lane == 0:
            rank.put(data, 1, torch.ones(1))
            rank.notify(cells, 0, 0, 1)
        else:
            rank.wait(cells, 0, 1)
            rank.quiet()
            rank.notify(cells, 1, 0, 1)
    elif rank.lane == 0:
        rank.wait(cells, 0, 1)
        rank.load(data, 0, 1)


def quiet_of_its_own(rank, data, cells):
    if rank.index == 0:
        if rank.lane == 0:
            rank.put(data, 1, torch.ones(1))
            rank.quiet()
            rank.notify(cells, 0, 0, 1)
        else:
            rank.wait(cells, 0, 1)
            rank.notify(cells, 1, 0, 1)
    elif rank.lane == 0:
        rank.wait(cells, 0, 1)
        rank.load(data, 0, 1)


def both_lanes_consume(rank, data, cells):
    """A cell for each lane, cleared by its lane, round after round."""
    peer = 1 - rank.index
    for round in range(3):
        rank.store(data, float(round), rank.lane)
        rank.notify(cells, peer, rank.lane, 1)
        rank.wait(cells, rank.lane, 1)
        rank.notify(cells, rank.index, rank.lane, -1)
        rank.quiet()
        rank.remote_load(data, peer, rank.lane, 1)
        rank.notify(cells, peer, 2 + rank.lane, 1)
        rank.wait(cells, 2 + rank.lane, round + 1)


@pytest.mark.parametrize(
    "program",
    [own_elements, handed_over, syncing_lane_puts, lane_told_before_the_sync, quiet_of_its_own,
     both_lanes_consume],
)
def test_ordered(program):
    assert conflicts(program) == []


@pytest.mark.parametrize(
    ("program", "pairs"),
    [
        (two_lanes_one_element, [("store", 0, "store", 1), ("store", 2, "store", 3)]),
        (one_lane_syncs, [("deliver", 1, "load", 2)]),
        (reader_is_another_lane, [("deliver", 0, "load", 3)]),
        (quiet_of_the_other_lane, [("deliver", 0, "load", 2)]),
    ],
)
def test_unordered(program, pairs):
    found = conflicts(program)
    assert {frozenset((pair[:2], pair[2:])) for pair in found} == {
        frozenset((pair[:2], pair[2:])) for pair in pairs
    }


def test_dispatches_of_lanes_are_ordered_by_their_join():
    def write(rank, data):
        if rank.lane == 1:
            rank.store(data, 1.0)

    def read(rank, data):
        if rank.lane == 0:
            rank.load(data, 0, 1)

    def host(world):
        data = world.alloc([1], torch.float32, name="data")
        for program in (write, read):
            world.dispatch(program, data, device=0, lanes=2)

    assert list(Conflicts(execute(Job(1, host)))) == []


def test_a_sync_of_a_group_orders_its_members_only():
    def program(rank, data, cells):
        if rank.index == 0:
            rank.put(data, 1, torch.ones(1))
            rank.put(data, 2, torch.ones(1))
        if rank.index < 2:
            rank.barrier([0, 1])
        if rank.index:
            rank.load(data, 0, 1)

    assert conflicts(program, 3, lanes=1) in ([("deliver", 0, "load", 2)], [("load", 2, "deliver", 0)])


def test_overlapping_groups_hand_over():
    def program(rank, data, cells):
        if rank.index == 0:
            rank.put(data, 2, torch.ones(1))
        for group in ([0, 1], [1, 2]):
            if rank.index in group:
                rank.barrier(group)
        if rank.index == 2:
            rank.load(data, 0, 1)

    assert conflicts(program, 3, lanes=1) == []
