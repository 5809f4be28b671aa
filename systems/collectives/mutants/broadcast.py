"""Mutants of rung 12: the wrong slice, ranks that hear of nothing, and a row that is not held."""

from __future__ import annotations

from harness import Rank, Window, mutant
from systems.collectives import broadcast as twin


@mutant(of=twin.fetch, expects="integrity/wrong_value", ranks=2)
def own_slice(rank: Rank, window: Window, root: int, n: int) -> None:
    """Each rank takes the row from its own part instead of the root's.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    rank.get(window.view([n], window.dtype), rank.index, window)


@mutant(of=twin.announce, expects="deadlock/missing_notify", ranks=2)
def root_zero_assumed(rank: Rank, signals: Window) -> None:
    """Only the ranks behind the root hear of its row, who are all others only while the root is 0.

    Finding: deadlock/missing_notify. Smallest world: 2.
    """
    for peer in range(rank.index + 1, rank.size):
        rank.notify(signals, peer, twin.ANNOUNCED * rank.size + rank.index, 1)


@mutant(of=twin.await_root, expects="integrity/unwritten_memory", ranks=2)
def read_before_staged(rank: Rank, signals: Window, root: int, epoch: int) -> None:
    """The readers do not wait until the root's row is staged.

    Finding: integrity/unwritten_memory (in a later round, a stale row). Smallest world: 2.
    """


@mutant(of=twin.await_readers, expects="integrity/wrong_value", ranks=2)
def readers_not_awaited(rank: Rank, signals: Window, epoch: int) -> None:
    """The root returns before its row is taken, so its next row lands where a slow rank still reads.

    Finding: integrity/wrong_value, the row of the next round. Smallest world: 2.
    """


@mutant(of=twin.await_readers, expects="deadlock/missing_notify", ranks=1)
def root_awaits_itself(rank: Rank, signals: Window, epoch: int) -> None:
    """The root counts itself among the readers, but takes no row and gives no credit.

    Finding: deadlock/missing_notify. Smallest world: 1.
    """
    for peer in range(rank.size):
        rank.wait(signals, twin.TAKEN * rank.size + peer, epoch + 1)
