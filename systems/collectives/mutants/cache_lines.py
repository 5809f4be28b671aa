"""Mutants of the exchange for cores with caches."""

from __future__ import annotations

from harness import mutant
from systems.collectives import cache_lines as twin


@mutant(of=twin.cell_of, expects="deadlock/overwritten_signal", ranks=3)
def packed_cells(phase: int, rank: int) -> int:
    """The writers' cells lie one after the other, so a Set writes its neighbours' old values back.

    Source: pto-isa pull request 323. Finding: deadlock/overwritten_signal. Smallest world: 3.
    """
    return phase * twin.RANKS_MAX * twin.LINE_CELLS + rank
