"""Credits left over at normal termination, and cells that may well keep what they hold."""

from __future__ import annotations

import pytest
import torch

from harness import NotifyOp
from harness.checkers.deadlock import Deadlock
from harness.fabric.execute import Job, execute
from harness.schedule import RandomWalk

ROUNDS = 3


def judged(program, ranks=3, rounds=ROUNDS, chooser=None):
    def host(world):
        cells = world.alloc([4], torch.int32, name="cells")
        for round in range(rounds):
            for index in range(world.size):
                world.dispatch(program, cells, round, device=index)

    run = execute(Job(ranks, host, chooser=chooser))
    assert run.ended == "returned"
    assert run.failures == []
    return list(Deadlock().check(run))


def give(rank, cells, at=0, amount=1):
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(cells, peer, at, amount)


def meets(rank, cells, at, back):
    give(rank, cells, at)
    rank.wait(cells, at, rank.size - 1)
    rank.notify(cells, rank.index, at, -back)
    rank.quiet()
    rank.barrier()


def credit_barrier(rank, cells, round):
    meets(rank, cells, 0, rank.size - 1)


def takes_back_too_little(rank, cells, round):
    meets(rank, cells, 0, rank.size - 1 - (rank.index == 1))


def gives_one_more(rank, cells, round):
    meets(rank, cells, 0, rank.size - 1)
    if rank.index == 2:
        rank.notify(cells, 0, 0, 1)
    rank.barrier()


def gives_more_in_the_last_round(rank, cells, round):
    meets(rank, cells, 0, rank.size - 1)
    if rank.index == 2 and round == ROUNDS - 1:
        rank.notify(cells, 0, 0, 1)


def growing_target(rank, cells, round):
    give(rank, cells)
    rank.wait(cells, 0, (rank.size - 1) * (round + 1))


def first_credits_stay(rank, cells, round):
    """Each peer may be one ahead: the first credit is given once and stays for ever."""
    if round == 0:
        give(rank, cells, 1)
    meets(rank, cells, 1, rank.size - 1) if round else rank.wait(cells, 1, rank.size - 1)


def reset_by_set(rank, cells, round):
    give(rank, cells)
    rank.wait(cells, 0, rank.size - 1)
    rank.notify(cells, rank.index, 0, -1)
    rank.quiet()
    rank.barrier()
    rank.notify(cells, rank.index, 0, 0, op=NotifyOp.Set)
    rank.quiet()
    rank.barrier()


def reset_by_store(rank, cells, round):
    meets(rank, cells, 0, 1)
    rank.store(cells, 0, 0)
    rank.barrier()


def nobody_waits(rank, cells, round):
    rank.notify(cells, rank.index, 0, 1)
    rank.notify(cells, rank.index, 1, -1)


@pytest.mark.parametrize(
    "program",
    [credit_barrier, growing_target, first_credits_stay, reset_by_set, reset_by_store, nobody_waits],
)
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_silent(program, rounds):
    for chooser in (None, *map(RandomWalk, range(5))):
        assert judged(program, rounds=rounds, chooser=chooser) == []


@pytest.mark.parametrize(
    ("program", "ranks", "culprit", "words"),
    [
        (takes_back_too_little, 3, 2, "leaves +1 on 'cells'[0] of rank 1: 2 given, 1 taken back"),
        (gives_one_more, 3, 2, "leaves +1 on 'cells'[0] of rank 0: 3 given, 2 taken back"),
        (gives_more_in_the_last_round, 3, 2, "dispatch 2 leaves +1 on 'cells'[0] of rank 0"),
    ],
)
def test_a_leak_names_cell_counts_and_rank(program, ranks, culprit, words):
    for chooser in (None, *map(RandomWalk, range(5))):
        (found,) = judged(program, ranks, chooser=chooser)
        assert found.name == "deadlock/signal_leak"
        assert words in found.message
        assert "pass 1 too early" in found.message
        assert len(found.sites) == 2
    if program is not takes_back_too_little:
        assert found.rank == culprit
        assert "rank 2 gave 2" in found.evidence[0]


def takes_back_too_much(rank, cells, round):
    meets(rank, cells, 0, rank.size - 1 + (round == ROUNDS - 1))


def test_a_cell_below_zero_lacks_what_the_next_round_awaits():
    (found,) = judged(takes_back_too_much)
    assert found.name == "deadlock/signal_leak"
    assert "leaves -1 on 'cells'[0] of rank 0" in found.message
    assert "the next round's waits lack 1" in found.message


def rounds_inside(rank, cells, round):
    """One dispatch with rounds of its own, each of which gives one more than it takes back."""
    for _ in range(4):
        meets(rank, cells, 0, rank.size - 2)


def rounds_inside_right(rank, cells, round):
    for _ in range(4):
        meets(rank, cells, 0, rank.size - 1)


def test_one_dispatch_leaks_when_more_is_left_than_was_given_at_first():
    (found,) = judged(rounds_inside, rounds=1)
    assert "the program leaves +4 on 'cells'[0] of rank 0" in found.message
    assert judged(rounds_inside_right, rounds=1) == []
