"""Mutants of the dissemination barrier: steps that leave somebody out."""

from __future__ import annotations

from harness import Rank, Window, mutant
from systems.collectives import dissemination as twin


@mutant(of=twin.exchange, expects="integrity/unwritten_memory", ranks=3)
def butterfly(
    rank: Rank, cells: Window, size: int, cell: int, distance: int, epoch: int
) -> None:
    """The partner is rank XOR distance, and is left out where there is no such rank.

    Right for powers of two; else some pairs never hear of each other. Source: torchcomms pull request
    3213. Finding: integrity/unwritten_memory. Smallest world: 3.
    """
    partner = rank.index ^ distance
    if partner < size:
        rank.notify(cells, partner, cell, 1)
        rank.wait(cells, cell, epoch)


@mutant(of=twin.distances, expects="integrity/unwritten_memory", ranks=3)
def logarithm_rounded_down(size: int) -> list[int]:
    """There are floor(log2(P)) steps, one too few unless P is a power of two.

    Source: torchcomms pull request 3213, the same sizes. Finding: integrity/unwritten_memory.
    Smallest world: 3.
    """
    return [1 << step for step in range(size.bit_length() - 1)]
