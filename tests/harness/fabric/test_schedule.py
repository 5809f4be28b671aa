"""The default run, what Hold and Preempt do to it, and that no position is ever rejected."""

from __future__ import annotations

import pytest
import torch

from harness.plan import Hold, Preempt

ONE = torch.ones(1)


def owners(run):
    return [event.owner for event in run.events]


def three_stores(rank):
    for number in range(3):
        rank.store(rank.buffer(1, torch.float32), float(number))


def ring(rank):
    window = rank.window("w", 1, torch.float32)
    cells = rank.window("c", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(window, right, torch.full((1,), float(rank.index)))
    rank.fence()
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(window, 0, 1).item()


def test_a_lane_goes_on_until_it_blocks_then_the_lowest_enabled_one(go):
    assert owners(go(three_stores, 3)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_lane_that_blocks_gives_way_to_the_lowest(go):
    def program(rank):
        rank.sync()
        rank.store(rank.buffer(1, torch.float32), 0.0)

    # 2 arrives last and goes on; then the lowest.
    assert owners(go(program, 3)) == [0, 1, 2, 2, 2, 0, 0, 1, 1]


def test_operations_are_delivered_at_once_in_issue_order(go):
    run = go(ring, 4)
    for index, event in enumerate(run.events):
        if event.kind in ("put", "notify"):
            assert run.events[index + 1].number == event.number
            assert run.events[index + 1].kind == "deliver"


@pytest.mark.parametrize("size", [1, 2, 3, 8, 64])
def test_every_world_size_runs_windows_rings_and_barriers(go, size):
    def program(rank):
        result = ring(rank)
        rank.barrier()
        rank.sync()
        return result

    run = go(program, size)
    assert run.ended == "returned"
    assert [result[0] for result in run.results] == [(r - 1) % size for r in range(size)]


def test_preempt_runs_the_other_owner_and_the_default_rule_resumes(go):
    # Point 0 is rank 0's first store; the others are ranks 1 and 2.
    assert owners(go(three_stores, 3, Preempt(0, 0))) == [1, 1, 1, 0, 0, 0, 2, 2, 2]
    assert owners(go(three_stores, 3, Preempt(0, 1))) == [2, 2, 2, 0, 0, 0, 1, 1, 1]
    assert owners(go(three_stores, 3, Preempt(4, 0))) == [0, 0, 0, 1, 2, 2, 2, 1, 1]


def test_a_preempt_may_choose_a_held_operation(go):
    def program(rank):
        window = rank.window("w", 1, torch.float32)
        if rank.index == 1:
            rank.put(window, 0, ONE)
            rank.load(window, 0, 1)
            rank.load(window, 0, 1)

    kinds = [event.kind for event in go(program, 2, Hold(0)).events]
    assert kinds[-4:] == ["load", "load", "window", "deliver"]
    found = {
        tuple(event.kind for event in go(program, 2, Hold(0), Preempt(at, 1)).events)[-4:]
        for at in range(8)
    }
    assert ("load", "deliver", "load", "window") in found


def test_only_points_with_a_choice_are_counted(go):
    assert go(three_stores, 1).points == 0
    run = go(three_stores, 2)
    assert run.points == 3, "while rank 0 runs rank 1 could; afterwards nobody else can"


@pytest.mark.parametrize("far", [10**4, 10**9, 2**62])
def test_positions_out_of_range_change_nothing_or_are_clamped(go, far):
    plain = go(ring, 3)
    for schedule in ((Hold(far),), (Preempt(far),)):
        run = go(ring, 3, *schedule)
        assert (run.identity(), run.deviations_applied) == (plain.identity(), 0), "never reached"
    # Point 0 has two other owners: the last of them is meant.
    clamped = go(ring, 3, Preempt(0, far))
    assert clamped.identity() == go(ring, 3, Preempt(0, 1)).identity() != plain.identity()
    assert clamped.deviations_applied == 1
    long = go(ring, 3, Hold(0, far))
    assert long.identity() == go(ring, 3, Hold(0)).identity()
    assert [result[0] for result in long.results] == [2.0, 0.0, 1.0]


@pytest.mark.parametrize("until", [1, 2, 3])
def test_hold_keeps_back_for_that_many_further_events(go, until):
    def program(rank):
        window = rank.window("w", 1, torch.float32)
        if rank.index == 0:
            rank.put(window, 1, ONE)
            for _ in range(5):
                rank.load(window, 0, 1)

    kinds = [event.kind for event in go(program, 2, Hold(0, until)).events]
    issued = kinds.index("put")
    assert kinds.index("deliver") == issued + 1 + until


def test_hold_zero_lasts_as_long_as_anything_else_can_move(go):
    def program(rank):
        window = rank.window("w", 1, torch.float32)
        if rank.index == 0:
            rank.put(window, 1, ONE)
            rank.quiet()
            return
        for _ in range(5):
            rank.load(window, 0, 1)

    kinds = [event.kind for event in go(program, 2, Hold(0)).events]
    assert kinds[-2:] == ["deliver", "quiet"]
    assert kinds.count("load") == 5


def test_of_two_deviations_for_one_place_the_first_counts(go):
    assert (
        go(three_stores, 3, Preempt(0, 1), Preempt(0, 0)).identity()
        == go(three_stores, 3, Preempt(0, 1)).identity()
    )
    assert go(ring, 3, Hold(0, 2), Hold(0)).identity() == go(ring, 3, Hold(0, 2)).identity()


def test_a_deviation_that_asks_for_the_default_is_not_needed(go):
    """Every schedule of a correct program gives the same results."""
    expected = [[2.0], [0.0], [1.0]]
    for at in range(12):
        for to in range(4):
            for hold in ((), (Hold(at % 6),), (Hold(at % 6, 2),)):
                assert go(ring, 3, *hold, Preempt(at, to)).results == expected


def test_an_explorer_chooses_at_every_point_and_only_there(go):
    class Last:
        def __init__(self):
            self.asked = 0

        def choose(self, simulation, lanes, ops):
            self.asked += 1
            assert len(lanes) + len(ops) > 1
            return (ops or lanes)[-1]

    chooser = Last()
    run = go(ring, 3, chooser=chooser)
    assert chooser.asked == run.points > 0
    assert run.results == [[2.0], [0.0], [1.0]]


def test_overrun_ends_a_run_that_only_goes_on(go):
    def program(rank):
        window = rank.window("w", 1, torch.float32)
        while True:
            rank.store(window, 1.0)

    run = go(program, 2, events_max=500)
    assert (run.ended, len(run.raw), run.blocked) == ("overrun", 500, [])
