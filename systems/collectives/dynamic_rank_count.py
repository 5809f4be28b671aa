"""Rung 7: an all-gather whose every shape follows the world size.

Each rank puts its row into every rank's window, its own included, at the place of its number; one
fence keeps the notifies behind the puts, for each target. Nothing in host or rank program names a
number of ranks. The barrier at the end keeps the next round from rows that are still read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs


def announce(rank: Rank, gathered: Window, cells: Window, own: torch.Tensor) -> None:
    """Put one's row to every rank, then notify every rank."""
    for peer in range(rank.size):
        rank.put(gathered, peer, own, rank.index * own.numel())
    rank.fence()
    for peer in range(rank.size):
        rank.notify(cells, peer, rank.index, 1)


def await_all(rank: Rank, cells: Window, round: int) -> None:
    """Return when the rows of this round are here."""
    for source in range(rank.size):
        rank.wait(cells, source, round + 1)


def all_have_read(rank: Rank) -> None:
    """Return when the gathered rows may be overwritten."""
    rank.barrier()


def dynamic_rank_count(
    rank: Rank, x: Buffer, out: Buffer, gathered: Window, cells: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    announce(rank, gathered, cells, rank.load(x, rank.index * n, n))
    await_all(rank, cells, round)
    count = rank.size * n
    rank.store(out, rank.load(gathered, 0, count), rank.index * count)
    all_have_read(rank)


def gathered_shape(world: World, n: int) -> list[int]:
    """The shape of one rank's part of the window: a row for every rank of this world."""
    return [world.size, n]


def dispatched_ranks(world: World) -> Iterator[int]:
    """The logical ranks that get a dispatch in each round."""
    yield from range(len(world.device_ids))


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in dispatched_ranks(world):
        world.dispatch(dynamic_rank_count, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    gathered = world.alloc(gathered_shape(world, max(params.sizes)), torch.float32, name="gathered")
    cells = world.alloc([world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "gathered",
        lambda x, out, n, round: dispatch_round(world, x, out, gathered, cells, n, round),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"gathered {round}": [inputs(size, n, round).reshape(-1)] * size
        for round, n in enumerate(params.sizes)
    }
