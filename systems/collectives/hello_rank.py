"""Rung 1: every rank greets with its number.

The host tells each rank its number in the dispatch; rank r adds it to row r of the input. No
windows, no traffic between ranks. Not modelled: the transfer of host tensors to a card.
"""

from __future__ import annotations

import torch

from harness import Buffer, Rank, World
from systems.collectives.rounds import Rounds, inputs
from systems.collectives.rounds import shared as in_shared_memory


def hello_rank(rank: Rank, x: Buffer, out: Buffer, me: int, n: int) -> None:
    """out[me] = x[me] + me. x, out: [size, n]."""
    rank.store(out, rank.load(x, me * n, n) + me, me * n)


def shared(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory that every rank's process sees."""
    return in_shared_memory(tensor)


def dispatch_round(world: World, x: torch.Tensor, out: torch.Tensor, n: int) -> None:
    """One dispatch a logical rank; which card it is does not matter to the program."""
    for r in range(len(world.device_ids)):
        world.dispatch(hello_rank, x, out, r, n, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    observed = {}
    for round, n in enumerate(params.sizes):
        x = shared(inputs(world.size, n, round))
        out = shared(torch.zeros(world.size, n))
        world.prepare(x, out)
        dispatch_round(world, x, out, n)
        observed[f"greeting {round}"] = list(out)
    return observed


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"greeting {round}": [row + r for r, row in enumerate(inputs(size, n, round))]
        for round, n in enumerate(params.sizes)
    }
