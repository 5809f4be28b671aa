"""Mutants of rung 13: rows in the wrong slot, and credits that are not given back, or badly."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.collectives import allgather as twin


@mutant(of=twin.slot, expects="integrity/wrong_value", ranks=2)
def gathered_into_the_wrong_slot(rank: Rank, peer: int, n: int) -> int:
    """A row is put in the slot of its receiver where that of its sender is due.

    Finding: integrity/wrong_value, all rows meet in one slot, the others stay empty. Smallest
    world: 2.
    """
    return peer * n


@mutant(of=twin.push, expects="integrity/unwritten_memory", ranks=1)
def own_row_left_out(rank: Rank, gathered: Window, own: torch.Tensor) -> None:
    """Rows are put to the peers; one's own never comes to one's own window.

    Finding: integrity/unwritten_memory. Smallest world: 1.
    """
    n = own.numel()
    for peer in twin.peers(rank):
        rank.put(gathered, peer, own, twin.slot(rank, peer, n))


@mutant(of=twin.tell, expects="integrity/unwritten_memory", ranks=2)
def credit_overtakes_row(rank: Rank, cells: Window, row: int) -> None:
    """No fence stands between the puts and the credits that announce them.

    Finding: integrity/unwritten_memory, with a put held back. Smallest world: 2.
    """
    for peer in twin.peers(rank):
        rank.notify(cells, peer, row * rank.size + rank.index, 1)


@mutant(of=twin.give_back, expects="integrity/stale_value", ranks=2)
def credits_kept(rank: Rank, cells: Window, row: int) -> None:
    """Credits are never given back, so only the first call waits for anybody.

    Finding: integrity/stale_value, a later call reads a row that has not come yet. Smallest world: 2.
    """


@mutant(of=twin.give_back, expects="deadlock/overdrawn", ranks=2)
def too_many_credits_returned(rank: Rank, cells: Window, row: int) -> None:
    """A cell gives back as many credits as there are ranks, though only one peer has given it one.

    Finding: deadlock/overdrawn, the next call's credits no more than pay the debt. Smallest world: 2.
    """
    for peer in twin.peers(rank):
        rank.notify(cells, rank.index, row * rank.size + peer, -rank.size)
    rank.quiet()


@mutant(of=twin.give_back, expects="integrity/stale_value", ranks=2)
def credits_still_in_flight(rank: Rank, cells: Window, row: int) -> None:
    """No quiet after credits are given back: they may still be there when the next call waits.

    Finding: integrity/stale_value, with one of the returns held back. Smallest world: 2. A hunt sees
    races/unordered_read in the default run first.
    """
    for peer in twin.peers(rank):
        rank.notify(cells, rank.index, row * rank.size + peer, -1)


@mutant(of=twin.all_have_read, expects="integrity/wrong_value", ranks=2)
def missing_read_barrier(rank: Rank, cells: Window) -> None:
    """Nobody asks whether the rows were read: the next call overwrites them.

    Finding: integrity/wrong_value, a row of the next round. Smallest world: 2.
    """
