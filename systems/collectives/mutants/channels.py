"""Mutant of the channels: a check that lets everything pass."""

from __future__ import annotations

from harness import mutant
from systems.collectives import channels as twin


@mutant(of=twin.limit, expects="integrity/wrong_value", ranks=2)
def limit_multiplied(cells: int, size: int) -> int:
    """The limit is the number of cells times that of ranks, where it is divided by it.

    Source: PyTorch issue 191618. Finding: integrity/wrong_value, a signal is added to the neighbour's
    data. In a world of one the limit is the same. Smallest world: 2.
    """
    return cells * size
