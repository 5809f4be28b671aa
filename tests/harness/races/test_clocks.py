"""What lanes know of each other, and how many passes it takes."""

from __future__ import annotations

import torch

from harness.races.clocks import Clocks
from harness.races.steps import Steps

F32, INT = torch.float32, torch.int32


def last(run, lane):
    return max(i for i, event in enumerate(run.raw) if event[0] == lane)


def test_without_waits_one_pass_is_enough(go):
    def program(rank):
        data = rank.window("data", 1, F32)
        rank.put(data, 0, torch.zeros(1))
        rank.barrier()
        rank.load(data, 0, 1)

    run = go(program, 3)
    clocks = Clocks(Steps(run))
    assert clocks.passes == 1
    lanes, mask = clocks.at(1, last(run, 1))
    assert mask == 0b111
    assert all(run.raw[at][1] in ("sync_arrive", "window_arrive") for at in lanes)


def test_sync_tells_of_lanes_but_completes_nothing(go):
    def program(rank):
        data = rank.window("data", 1, F32)
        rank.put(data, 0, torch.zeros(1))
        rank.sync()

    run = go(program, 2)
    lanes, mask = Clocks(Steps(run)).at(0, last(run, 0))
    assert mask == 0
    assert run.raw[lanes[1]][1] == "sync_arrive"


def test_a_wait_knows_less_than_it_happened_to_hear(go):
    """Two notifies have come, either would do."""

    def program(rank):
        cells = rank.window("c", 1, INT)
        if rank.index:
            rank.notify(cells, 0, 0, 1)
        rank.sync()
        if rank.index:
            rank.notify(cells, 0, 0, 1)
        else:
            rank.wait(cells, 0, 1)

    run = go(program, 3)
    clocks = Clocks(Steps(run))
    wait = last(run, 0)
    assert clocks.passes > 1
    assert clocks.at(0, wait)[1] == 0
    assert clocks.at(0, wait, roughly=True)[1] != 0


def test_before_anything_happens_nothing_is_known(go):
    run = go(lambda rank: rank.fence(), 2)
    assert Clocks(Steps(run)).at(0, 0) == ((-1, -1), 0)
