"""Mutants of rung 15: one window for two, blocks in the wrong place, memory used again too early."""

from __future__ import annotations

from typing import Any

import torch

from harness import Rank, Window, World, mutant
from systems.collectives import alltoall as twin


@mutant(of=twin.data_windows, expects="integrity/wrong_value", ranks=2)
def source_and_result_in_one_window(world: World, n: int) -> tuple[Any, Any]:
    """The exchange is done in place: a block that arrives overwrites one that is yet to be sent.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    window = world.alloc([world.size, n], torch.float32, name="blocks")
    return window, window


@mutant(of=twin.place, expects="integrity/wrong_value", ranks=2)
def transposed_place(inbox: Window, source: int, target: int, n: int) -> int:
    """The place of a block goes by its target where it should go by its source.

    Finding: integrity/wrong_value, all blocks for a rank meet in one place. Smallest world: 2.
    """
    return target * inbox.shape[1]


@mutant(of=twin.place, expects="integrity/wrong_value", ranks=2)
def places_move_with_the_size(inbox: Window, source: int, target: int, n: int) -> int:
    """Blocks of n elements stand side by side, so that a place moves when n changes.

    Then it overlaps the place that another source had in the last round, and what this source was
    told says nothing about that one. Finding: integrity/wrong_value. Smallest world: 2.
    """
    return source * n


@mutant(of=twin.arrived_cell, expects="integrity/unwritten_memory", ranks=2)
def one_counter_for_all_sources(rank: Rank, source: int) -> int:
    """All blocks are counted on one cell, so one source's arrival is taken for another's.

    Finding: integrity/unwritten_memory. Smallest world: 2.
    """
    return twin.ARRIVED * rank.size


@mutant(of=twin.await_taken, expects="integrity/wrong_value", ranks=2)
def readers_not_awaited(rank: Rank, cells: Window, round: int) -> None:
    """A block is written over one that its target is still to read.

    Finding: integrity/wrong_value, the block of the next round. Smallest world: 2.
    """


@mutant(of=twin.settle, expects="integrity/wrong_value", ranks=2)
def fence_for_quiet(rank: Rank) -> None:
    """A fence keeps the notifies behind the blocks, but the outbox is filled again in the meantime.

    Finding: integrity/wrong_value, a late put_nbi sends what the next round has put there. Smallest
    world: 2, with that put held back: alone, a rank cannot begin that round before.
    """
    rank.fence()


@mutant(of=twin.settle, expects="integrity/unwritten_memory", ranks=1)
def not_settled(rank: Rank) -> None:
    """Neither quiet nor fence stands between the blocks and the notifies.

    Finding: integrity/unwritten_memory, with a put held back. Smallest world: 1.
    """
