"""Mutant of the pipeline: arrivals that do not say which chunk has come."""

from __future__ import annotations

from harness import mutant
from systems.collectives import pipeline as twin


@mutant(of=twin.arrival, expects="integrity/unwritten_memory", ranks=1)
def one_counter_for_all_chunks(index: int, round: int) -> tuple[int, int]:
    """One cell counts all chunks, which tells how many have come but not which.

    Source: NVSHMEM issue 84. Finding: integrity/unwritten_memory, with a chunk held back that a later
    one overtakes. Smallest world: 1.
    """
    return 0, round * twin.CHUNKS + index + 1
