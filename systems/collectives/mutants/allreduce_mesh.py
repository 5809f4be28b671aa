"""Mutants of rung 8: a barrier that is missing, or that is no barrier of all."""

from __future__ import annotations

from harness import Rank, Window, mutant
from systems.collectives import allreduce_mesh as twin


@mutant(of=twin.all_have_staged, expects="integrity/unwritten_memory", ranks=2)
def missing_barrier(rank: Rank, signals: Window, round: int) -> None:
    """No barrier between staging and reading: a part is summed before it holds its row.

    On cards it may pass for long with two ranks and fail with four, as each further peer is one
    more that can be late. Finding: integrity/unwritten_memory (in a later round, a stale row).
    Smallest world: 2.
    """


@mutant(of=twin.all_have_read, expects="integrity/wrong_value", ranks=2)
def missing_second_barrier(rank: Rank, signals: Window, round: int) -> None:
    """No barrier between reading and overwriting: a fast rank's sum stands where a slow one reads.

    Finding: integrity/wrong_value. Smallest world: 2.
    """


@mutant(of=twin.mesh_barrier, expects="integrity/wrong_value", ranks=3)
def neighbours_only(rank: Rank, signals: Window, row: int, epoch: int) -> None:
    """The barrier meets only the next rank in the ring, which is everybody in a world of two.

    Finding: integrity/wrong_value, a part is read that its owner has overwritten or, on other
    schedules, has not written yet. Smallest world: 3.
    """
    first = row * rank.size
    rank.notify(signals, (rank.index + 1) % rank.size, first + rank.index, 1)
    rank.wait(signals, first + (rank.index - 1) % rank.size, epoch)
