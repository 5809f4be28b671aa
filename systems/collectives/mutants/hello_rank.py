"""Mutants of rung 1: who a rank is, on the host's side, and memory that ranks cannot see."""

from __future__ import annotations

import torch

from harness import World, mutant
from systems.collectives import hello_rank as twin


@mutant(of=twin.dispatch_round, expects="integrity/wrong_value", ranks=2)
def identity_read_once(world: World, x: torch.Tensor, out: torch.Tensor, n: int) -> None:
    """The host reads a rank's identity once, before the loop, and every rank is told the same.

    Finding: integrity/wrong_value, the rows of all other ranks are never written. Smallest world:
    2.
    """
    me = world.device_ids.index(world.device_ids[0])
    for r in range(len(world.device_ids)):
        world.dispatch(twin.hello_rank, x, out, me, n, device=r)


@mutant(of=twin.dispatch_round, expects="exceptions/dispatch_error", ranks=1)
def device_id_as_rank(world: World, x: torch.Tensor, out: torch.Tensor, n: int) -> None:
    """A card's number is taken for a logical rank; right only while cards are 0, 1, 2…

    Finding: exceptions/dispatch_error, no rank has that number. Smallest world: 1 (on card 4).
    """
    for r in range(len(world.device_ids)):
        world.dispatch(twin.hello_rank, x, out, r, n, device=world.device_ids[r])


@mutant(of=twin.shared, expects="exceptions/not_shared", ranks=1)
def missing_share_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The host tensor stays in private memory, so a rank's process would see a copy of its own.

    Finding: exceptions/not_shared at `prepare`. Smallest world: 1.
    """
    return tensor
