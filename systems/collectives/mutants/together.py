"""Mutants of rung 16: phases that are right each by itself and share what they must not."""

from __future__ import annotations

from typing import Any

import torch

from harness import Rank, Window, World, mutant
from systems.collectives import together as twin


@mutant(of=twin.signal_windows, expects="integrity/wrong_value", ranks=2)
def one_window_for_two_layouts(world: World) -> tuple[Any, Any, Any]:
    """The broadcast's one cell is also the all-reduce's cell for rank 0.

    Once rank 0 has staged a row, its count stands there as a credit that nobody has given. Finding:
    integrity/wrong_value, the last weights are taken for the next ones. Smallest world: 2.
    """
    signals = world.alloc([2, world.size], torch.int32, name="signals")
    credits = world.alloc([2, world.size], torch.int32, name="credits")
    return signals, signals, credits


@mutant(of=twin.signal_windows, expects="integrity/unwritten_memory", ranks=2)
def counts_taken_for_credits(world: World) -> tuple[Any, Any, Any]:
    """All-reduce and all-gather have the same shape of signals, so they get the same window.

    One counts in it for ever, the other waits for 1. Finding: integrity/unwritten_memory, shares are
    read before they have come. Smallest world: 2.
    """
    credit = world.alloc([1], torch.int32, name="credit")
    signals = world.alloc([2, world.size], torch.int32, name="signals")
    return credit, signals, signals


@mutant(of=twin.data_windows, expects="integrity/wrong_value", ranks=2)
def one_data_window(world: World, n: int) -> tuple[Any, Any, Any]:
    """The shares are gathered into the window of the sum, which is done with by then.

    Not on every rank: behind the all-reduce's last barrier a slow rank has yet to store the sum when
    a fast one puts its share there. Finding: integrity/wrong_value. Smallest world: 2.
    """
    weights = world.alloc([n], torch.float32, name="weights")
    rows = world.alloc([world.size, n], torch.float32, name="rows")
    return weights, rows, rows


@mutant(of=twin.root_of, expects="integrity/wrong_value", ranks=2)
def root_left_at_its_default(round: int, size: int) -> int:
    """The root is not passed on, and is rank 0 in every round.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    return 0


@mutant(of=twin.give_back, expects="integrity/wrong_value", ranks=1)
def credit_kept(rank: Rank, credit: Window) -> None:
    """The broadcast's credit is never given back, so that only the first weights are awaited.

    Finding: integrity/wrong_value, the last weights are taken for the next ones. Smallest world: 1.
    """


@mutant(of=twin.broadcast, expects="integrity/wrong_value", ranks=2)
def root_leaves_early(
    rank: Rank, landing: Window, credit: Window, own: torch.Tensor, root: int
) -> torch.Tensor:
    """The root has the weights and returns at once; the credit that it gave itself stays.

    Finding: integrity/wrong_value, it does not await the weights of the next root. Smallest world: 2.
    """
    if rank.index == root:
        twin.send_weights(rank, landing, credit, own)
        return own
    return twin.take_weights(rank, landing, credit, own.numel())
