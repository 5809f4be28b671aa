"""Mutants of rung 7: a number of ranks written into the program, and rows nobody hears of."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness import Rank, Window, World, mutant
from systems.collectives import dynamic_rank_count as twin


@mutant(of=twin.gathered_shape, expects="exceptions/out_of_bounds", ranks=3)
def world_size_in_shape(world: World, n: int) -> list[int]:
    """The world size of the machine on which it was written, 2, stands in a host shape.

    Finding: exceptions/out_of_bounds, a third row does not fit. Smallest world: 3.
    """
    return [2, n]


@mutant(of=twin.dispatched_ranks, expects="exceptions/dispatch_error", ranks=3)
def dispatch_loop_too_short(world: World) -> Iterator[int]:
    """The dispatch loop covers two ranks, whatever device_ids holds.

    Finding: exceptions/dispatch_error, the last ranks get no dispatch. Smallest world: 3.
    """
    yield from range(min(2, len(world.device_ids)))


@mutant(of=twin.announce, expects="deadlock/missing_notify", ranks=1)
def rows_not_announced(rank: Rank, gathered: Window, cells: Window, own: torch.Tensor) -> None:
    """The rows are put, but no notify follows.

    Finding: deadlock/missing_notify, everybody waits for ever. Smallest world: 1.
    """
    for peer in range(rank.size):
        rank.put(gathered, peer, own, rank.index * own.numel())
