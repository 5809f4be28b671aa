"""Mutants of rung 4: arrivals that are overwritten, counted wrongly or announced early."""

from __future__ import annotations

from harness import NotifyOp, Rank, WaitCmp, Window, mutant
from systems.collectives import barrier as twin


@mutant(of=twin.arrive_and_wait, expects="deadlock/overshoot", ranks=2)
def set_and_eq(rank: Rank, arrivals: Window, epoch: int) -> None:
    """Arrivals on the shared cell are Set and compared with Eq, so one overwrites another.

    Finding: deadlock/overshoot, a fast peer's second arrival replaces its first before this rank
    has looked. Smallest world: 2. From three ranks on the arrivals of two peers overwrite each
    other and the sum is never reached: deadlock/overwritten_signal.
    """
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(arrivals, peer, 0, epoch, op=NotifyOp.Set)
    rank.wait(arrivals, 0, epoch * (rank.size - 1), cmp=WaitCmp.Eq)


@mutant(of=twin.arrive_and_wait, expects="deadlock/overwritten_signal", ranks=3)
def set_for_add(rank: Rank, arrivals: Window, epoch: int) -> None:
    """Arrivals on the shared cell are Set to the epoch where they should add up.

    With two ranks the only peer's epoch is the sum. Finding: deadlock/overwritten_signal, the
    second peer to arrive overwrites the first. Smallest world: 3.
    """
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(arrivals, peer, 0, epoch, op=NotifyOp.Set)
    rank.wait(arrivals, 0, epoch * (rank.size - 1))


@mutant(of=twin.arrive_and_wait, expects="integrity/wrong_value", ranks=2)
def epoch_forgotten(rank: Rank, arrivals: Window, epoch: int) -> None:
    """Every use waits for the first use's count, so only the first one holds anybody back.

    Finding: integrity/wrong_value, a board is read or overwritten too early in a later use.
    Smallest world: 2.
    """
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(arrivals, peer, 0, 1)
    rank.wait(arrivals, 0, rank.size - 1)


@mutant(of=twin.settle, expects="integrity/unwritten_memory", ranks=3)
def fence_for_quiet(rank: Rank) -> None:
    """A fence stands where quiet is due: arrivals follow this rank's puts per target only.

    With two ranks that is enough. With three, a fast peer's second arrival completes the count of a
    rank to which a slow peer's put and first arrival are still on their way.
    Finding: integrity/unwritten_memory, with that put held back. Smallest world: 3.
    """
    rank.fence()


@mutant(of=twin.arrive_and_wait, expects="integrity/stale_value", ranks=2)
def epoch_added(rank: Rank, arrivals: Window, epoch: int) -> None:
    """An arrival adds the epoch where it should add 1, so the count runs ahead of the threshold.

    The first two uses still wait; from the third on what is there suffices. Source: the review of pypto
    pull request 1829. Finding: integrity/stale_value. Smallest world: 2.
    """
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(arrivals, peer, 0, epoch)
    rank.wait(arrivals, 0, epoch * (rank.size - 1))


@mutant(of=twin.arrive_and_wait, expects="deadlock/cycle", ranks=2)
def threshold_grows_faster(rank: Rank, arrivals: Window, epoch: int) -> None:
    """The threshold sums up all epochs so far, though each of them adds 1.

    Source: pypto.md 5.4, pattern 5. Finding: deadlock/cycle, all wait in the second use. Smallest
    world: 2.
    """
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(arrivals, peer, 0, 1)
    rank.wait(arrivals, 0, epoch * (epoch + 1) // 2 * (rank.size - 1))
