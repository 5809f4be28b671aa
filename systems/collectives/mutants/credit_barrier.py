"""Mutants of the credit barrier: credits that stay, are lost, or are taken back once too often."""

from __future__ import annotations

from harness import NotifyOp, Rank, WaitCmp, Window, mutant
from systems.collectives import credit_barrier as twin


@mutant(of=twin.meet, expects="integrity/stale_value", ranks=2)
def sticky_flag(rank: Rank, cells: Window) -> None:
    """An arrival Sets a flag to 1 that nobody takes back, so only the first call waits for anybody.

    Source: pypto issue 2156 and the review of pull request 1829. Finding: integrity/stale_value, a
    board is read before the next row is on it. Smallest world: 2.
    """
    rank.fence()
    for peer in twin.peers(rank):
        rank.notify(cells, peer, rank.index, 1, op=NotifyOp.Set)
    twin.await_peers(rank, cells)


@mutant(of=twin.give_back, expects="deadlock/overdrawn", ranks=2)
def one_credit_too_many(rank: Rank, cells: Window) -> None:
    """The epilogue counts the baseline as a credit and takes back two where one was given.

    Source: the review of pypto pull request 2279, variant b. Finding: deadlock/overdrawn, the next call's
    credits no more than pay the debt. Smallest world: 2.
    """
    for peer in twin.peers(rank):
        rank.notify(cells, rank.index, peer, -2)
    rank.quiet()


@mutant(of=twin.give_back, expects="integrity/stale_value", ranks=2)
def last_credit_kept(rank: Rank, cells: Window) -> None:
    """The epilogue leaves out the last peer, whose credit lets every later call pass at once.

    Source: pypto pull request 2279, the count of credits off by one. Finding: integrity/stale_value.
    Smallest world: 2.
    """
    for peer in twin.peers(rank)[:-1]:
        rank.notify(cells, rank.index, peer, -1)
    rank.quiet()


@mutant(of=twin.give_back, expects="deadlock/overwritten_signal", ranks=2)
def reset_by_set(rank: Rank, cells: Window) -> None:
    """Cells are Set to 0 where credits are to be taken off, which also wipes what came early.

    Source: pypto pull request 2279, variant a. Finding: deadlock/overwritten_signal, a fast peer had
    given its credit for the next call. Smallest world: 2.
    """
    for peer in twin.peers(rank):
        rank.notify(cells, rank.index, peer, 0, op=NotifyOp.Set)
    rank.quiet()


@mutant(of=twin.await_peers, expects="deadlock/overshoot", ranks=2)
def waits_for_exactly_one(rank: Rank, cells: Window) -> None:
    """The wait is for exactly one credit, but a fast peer's next one may be there as well.

    Source: pypto issue 1746, an equality wait on a cell that goes on. Finding: deadlock/overshoot.
    Smallest world: 2.
    """
    for peer in twin.peers(rank):
        rank.wait(cells, peer, 1, cmp=WaitCmp.Eq)
