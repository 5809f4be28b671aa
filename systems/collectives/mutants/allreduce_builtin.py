"""Mutants of rung 11: one algorithm's signals given to the other, and reductions that only add."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness import Rank, Window, mutant
from systems.collectives import allreduce_builtin as twin
from systems.collectives import allreduce_ring
from systems.collectives.allreduce_builtin import Algorithm, Reductions
from systems.collectives.allreduce_ring import Combine


@mutant(of=twin.signal_shape, expects="exceptions/out_of_bounds", ranks=2)
def mesh_signals_for_ring(algorithm: Algorithm, size: int) -> list[int]:
    """The ring gets signals of the mesh's shape: two rows, where it has a row a step.

    Finding: exceptions/out_of_bounds, a notify behind the last row. Smallest world: 2.
    """
    return [2, size]


@mutant(of=twin.signal_shape, expects="exceptions/out_of_bounds", ranks=2)
def ring_signals_for_mesh(algorithm: Algorithm, size: int) -> list[int]:
    """The mesh gets signals of the ring's shape: rows of one cell, where it has a cell a peer.

    Finding: exceptions/out_of_bounds, the last rank's cell of the second barrier. Smallest world: 2.
    """
    return allreduce_ring.signal_shape(size)


@mutant(of=twin.epoch_of, expects="deadlock/missing_notify", ranks=2)
def all_calls_counted(params: Reductions, round: int) -> int:
    """The threshold grows with every call, the cells only with their own algorithm's.

    Finding: deadlock/missing_notify, in the first call after one of the other algorithm. Smallest
    world: 2.
    """
    return round


@mutant(of=twin.fold, expects="integrity/wrong_value", ranks=2)
def starts_from_zero(parts: Sequence[torch.Tensor], combine: Combine) -> torch.Tensor:
    """Every reduction starts from zeros, which is right for the sum only.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    total = torch.zeros_like(parts[0])
    for part in parts:
        total = combine(total, part)
    return total


@mutant(of=twin.ring, expects="integrity/wrong_value", ranks=2)
def ring_only_adds(
    rank: Rank, window: Window, signals: Window, n: int, epoch: int, combine: Combine
) -> None:
    """The ring adds, whatever reduction was asked for.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    allreduce_ring.allreduce(rank, window, signals, n, epoch)
