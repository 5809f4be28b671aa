"""Rung 2: the three levels of a program as plain functions.

The host level dispatches, the device level runs once a rank and cuts its row into tiles, the kernel
level computes on one tile. Not modelled: levels that run on different processors of a card, or
kernels of one device program that run side by side.
"""

from __future__ import annotations

import torch

from harness import Buffer, Rank, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

TILE = 4
SCALE = 3


def kernel_level(tile: torch.Tensor, scale: int, bias: int) -> torch.Tensor:
    """tile * scale + bias."""
    return tile * scale + bias


def device_level(rank: Rank, x: Buffer, out: Buffer, n: int, scale: int) -> None:
    """Row `rank.index` of out = the kernel over row `rank.index` of x, tile by tile."""
    start = rank.index * n
    for at in range(start, start + n, TILE):
        count = min(TILE, start + n - at)
        rank.store(out, kernel_level(rank.load(x, at, count), scale, rank.index), at)


def host_level(world: World, x: torch.Tensor, out: torch.Tensor, n: int, scale: int) -> None:
    """One dispatch a logical rank: tensors first, then scalars."""
    for r in range(len(world.device_ids)):
        world.dispatch(device_level, x, out, n, scale, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    return in_rounds(
        world, params.sizes, "scaled",
        lambda x, out, n, round: host_level(world, x, out, n, SCALE),
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"scaled {round}": [row * SCALE + r for r, row in enumerate(inputs(size, n, round))]
        for round, n in enumerate(params.sizes)
    }
