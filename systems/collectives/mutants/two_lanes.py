"""Mutants of the two-lane all-gather: lanes that do too much, or take the other's order for their own."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.collectives import two_lanes as twin


@mutant(of=twin.sends, expects="deadlock/missing_notify", ranks=1)
def both_lanes_send(rank: Rank) -> bool:
    """A body that is not told apart by lane runs on both: nobody receives. Finding:
    deadlock/missing_notify. Smallest world: 1.
    """
    return True


@mutant(of=twin.announce, expects="integrity/unwritten_memory", ranks=1)
def fence_is_the_other_lanes(rank: Rank, cells: Window, peer: int) -> None:
    """Only the receiving lane fences, which orders nothing that the sending lane put.

    Finding: integrity/unwritten_memory (a later round: stale_value). Smallest world: 1.
    """
    if rank.lane == 1:
        rank.fence()
    rank.notify(cells, peer, twin.ARRIVED * rank.size + rank.index, 1)


@mutant(of=twin.await_credit, expects="integrity/wrong_value", ranks=2)
def credit_not_awaited(rank: Rank, cells: Window, peer: int, round: int) -> None:
    """The next row is put on a board from which the last one has not been read. Within a rank the join
    of its lanes orders that. Finding: integrity/wrong_value. Smallest world: 2.
    """


@mutant(of=twin.take, expects="integrity/wrong_value", ranks=2)
def credit_before_the_copy(
    rank: Rank, board: Window, cells: Window, source: int, at: int, n: int
) -> torch.Tensor:
    """The credit is given before the row is copied out. Finding: integrity/wrong_value.

    Smallest world: 2.
    """
    rank.notify(cells, source, twin.READ * rank.size + rank.index, 1)
    return rank.load(board, at, n)
