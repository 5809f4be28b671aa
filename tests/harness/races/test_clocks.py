"""What lanes know of each other, and how many passes it takes."""

from __future__ import annotations

import torch

from harness.races.clocks import Behind, Clocks, sent
from harness.races.known import NONE, NOTHING, Known
from harness.races.steps import Send, Steps

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
    lanes, done = clocks.at(1, last(run, 1))
    assert done == Known(3)
    assert all(run.raw[at][1] in ("sync_arrive", "window_arrive") for at in lanes)


def test_sync_tells_of_lanes_but_completes_nothing(go):
    def program(rank):
        data = rank.window("data", 1, F32)
        rank.put(data, 0, torch.zeros(1))
        rank.sync()

    run = go(program, 2)
    lanes, done = Clocks(Steps(run)).at(0, last(run, 0))
    assert done == NOTHING
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
    assert clocks.at(0, wait)[1] == NOTHING
    assert clocks.at(0, wait, roughly=True)[1] != NOTHING


def test_before_anything_happens_nothing_is_known(go):
    run = go(lambda rank: rank.fence(), 2)
    assert Clocks(Steps(run)).at(0, 0) == ((-1, -1), NOTHING)


def test_fences_order_one_target_and_a_signal_its_own_data(go):
    def program(rank):
        data, cells = rank.window("data", 4, F32), rank.window("c", 1, INT)
        if rank.index == 0:
            rank.put(data, 1, torch.zeros(1))  # 0
            rank.put(data, 2, torch.zeros(1))  # 1
            rank.fence()
            rank.notify(cells, 1, 0, 1)  # 2
            rank.put_signal(data, 1, torch.zeros(1), 1, cells, 0, 1)  # 3 and its signal 4
            rank.get(rank.buffer(1, F32), 1, data)  # 5

    steps = Steps(go(program, 3))
    behind = {}
    known = []
    for send in steps.sends:
        before = behind.setdefault(send.pair, Behind()).next(send, 0) if send.pair >= 0 else NONE
        known.append(sent(0, 0, ((-1,) * 3, NOTHING), send, before)[1])
    assert known == [Known(0, m) for m in (0b1, 0b10, 0b101, 0b1001, 0b11001, 0b100000)]


def test_what_a_lane_knows_anyway_is_forgotten():
    behind = Behind()
    for number in range(50):
        assert behind.next(Send(number, 0, 0, signal=False), 0) == NONE
    assert behind.next(Send(50, 0, 1, signal=False), 0) == (0, (1 << 50) - 1)
    assert behind.next(Send(51, 0, 1, signal=False), 48) == (48, 0b11)
    assert behind.next(Send(52, 0, 2, signal=False), 51) == (51, 0b1)


def test_clocks_of_a_long_run_stay_small(go):
    def program(rank):
        cells = rank.window("c", 4, INT)
        for turn in range(200):
            rank.fence()
            for peer in range(rank.size):
                rank.notify(cells, peer, rank.index, 1)
            for peer in range(rank.size):
                rank.wait(cells, peer, turn + 1)

    clocks = Clocks(Steps(go(program, 4)))
    assert max(done.bits.bit_length() for _, done in clocks.changes.values()) < 64
    assert max(done.base for _, done in clocks.changes.values()) > 3000
