"""Mutants of rung 10: the wrong neighbour, the wrong step's cell, steps with nothing to wait for."""

from __future__ import annotations

import math

import torch

from harness import Rank, Window, mutant
from systems.collectives import allreduce_ring as twin
from systems.collectives.allreduce_ring import Combine


@mutant(of=twin.left_of, expects="exceptions/wrong_peer", ranks=2)
def truncating_modulo(rank: Rank) -> int:
    """The remainder is that of a truncating division, as on the device, so rank 0's left one is -1.

    Finding: exceptions/wrong_peer. Smallest world: 2.
    """
    return int(math.fmod(rank.index - 1, rank.size))


@mutant(of=twin.right_of, expects="integrity/wrong_value", ranks=3)
def announces_to_left(rank: Rank) -> int:
    """Chunks are announced to the left neighbour, who is the right one in a world of two.

    Finding: integrity/wrong_value, as the signal that a rank awaits says nothing of the one from which
    it pulls. Smallest world: 3.
    """
    return (rank.index - 1) % rank.size


@mutant(of=twin.row_of, expects="integrity/wrong_value", ranks=2)
def halves_share_rows(rank: Rank, phase: int, step: int) -> int:
    """The second half counts on the first half's rows, so none of its steps waits.

    Finding: integrity/wrong_value, an unfinished chunk is taken for a finished one. Smallest world:
    2.
    """
    return (phase * (rank.size - 1) if phase == twin.LEAVE else 0) + step


@mutant(of=twin.await_neighbour, expects="integrity/unwritten_memory", ranks=2)
def first_pull_unguarded(
    rank: Rank, signals: Window, phase: int, step: int, round: int
) -> None:
    """The first step has nothing to wait for: its chunk was staged, though perhaps not yet.

    Finding: integrity/unwritten_memory. Smallest world: 2.
    """
    if phase != twin.REDUCE or step > 0:
        rank.wait(signals, twin.cell_of(rank, signals, phase, step), round + 1)


@mutant(of=twin.reduce_step, expects="integrity/wrong_value", ranks=2)
def overwritten_not_combined(
    rank: Rank, window: Window, n: int, step: int, combine: Combine
) -> None:
    """The first half, too, overwrites one's own chunk.

    Finding: integrity/wrong_value, each chunk is one rank's. Smallest world: 2.
    """
    start, received = twin.pull(rank, window, n, rank.index - step - 1)
    twin.write(rank, window, start, received)


@mutant(of=twin.allreduce, expects="integrity/wrong_value", ranks=2)
def credit_before_last_pull(
    rank: Rank,
    window: Window,
    signals: Window,
    n: int,
    round: int,
    combine: Combine = torch.add,
) -> None:
    """The left neighbour gets its credit before the last chunk is pulled, and stages its next row.

    Finding: integrity/wrong_value, an element of the next round. Smallest world: 2.
    """
    for phase, steps in ((twin.REDUCE, rank.size - 1), (twin.GATHER, rank.size - 1)):
        for step in range(steps):
            twin.announce(rank, signals, twin.right_of(rank), phase, step)
            twin.await_neighbour(rank, signals, phase, step, round)
            if phase == twin.REDUCE:
                twin.reduce_step(rank, window, n, step, combine)
                continue
            if step == steps - 1:
                twin.leave(rank, signals, round)
            twin.gather_step(rank, window, n, step)
