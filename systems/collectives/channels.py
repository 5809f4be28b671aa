"""Signals on numbered channels, on a pad of cells that lies directly in front of data.

Each channel has a cell a rank, so a pad of C cells has C / P channels. A number that is too large is
refused on the calling rank; were it used, the signal would land in the neighbour's data. A rank puts its
row behind its right neighbour's pad and signals on the last channel and, as a careless caller would, on
two that do not exist. Then all meet, before the next row may come.

Source: PyTorch issue 191618, a limit that was multiplied by P where it is divided.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World, values
from systems.collectives.rounds import Rounds, shared

CHANNELS = 4


def limit(cells: int, size: int) -> int:
    """How many channels a pad of so many cells has."""
    return cells // size


def cell_of(channel: int, index: int, cells: int, size: int) -> int | None:
    """The cell on which rank `index` is heard on a channel; None: there is no such channel."""
    return channel * size + index if channel < limit(cells, size) else None


def signal(rank: Rank, memory: Window, channel: int, cells: int) -> None:
    """Signal the right neighbour on a channel, if it exists."""
    cell = cell_of(channel, rank.index, cells, rank.size)
    if cell is not None:
        rank.notify(memory, (rank.index + 1) % rank.size, cell, 1)


def channels(rank: Rank, x: Buffer, out: Buffer, memory: Window, n: int, round: int) -> None:
    """Row `rank.index` of out = the left neighbour's row of x; both [size, n]."""
    cells = CHANNELS * rank.size
    mine = rank.index * n
    rank.put(memory, (rank.index + 1) % rank.size, rank.load(x, mine, n), cells)
    rank.fence()
    for channel in (CHANNELS + 1, CHANNELS, CHANNELS - 1):
        signal(rank, memory, channel, cells)
    left = (rank.index - 1) % rank.size
    rank.wait(memory, (CHANNELS - 1) * rank.size + left, round + 1)
    rank.store(out, rank.load(memory, cells, n), mine)
    rank.sync()


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(channels, *args, device=r)


def inputs(size: int, n: int, round: int) -> torch.Tensor:
    """[size, n] int32: row r is what rank r sends in `round`."""
    return torch.stack([values(rank, n, round, torch.int32) for rank in range(size)])


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    data = max(*params.sizes, 2 * world.size)
    memory = world.alloc([CHANNELS * world.size + data], torch.int32, name="memory", init="zero")
    observed = {}
    for round, n in enumerate(params.sizes):
        x = shared(inputs(world.size, n, round))
        out = shared(torch.zeros(world.size, n, dtype=torch.int32))
        world.prepare(x, out)
        dispatch_round(world, x, out, memory, n, round)
        observed[f"data {round}"] = list(out)
    return observed


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"data {round}": list(inputs(size, n, round).roll(1, 0))
        for round, n in enumerate(params.sizes)
    }
