"""A row sent to the right neighbour chunk by chunk, each taken as soon as it is here.

Chunks travel as put_signal and may overtake each other, so each has a cell of its own, which counts
rounds: a count of chunks would say how many have come, not which. The next row is sent only when the
receiver has taken all chunks of the last one. An empty chunk is announced as well.

Source: NVSHMEM issue 84, a ring that counted chunks and was right on one transport only.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.allreduce_twophase import chunk
from systems.collectives.rounds import Rounds, in_rounds, inputs

CHUNKS = 3
TAKEN = CHUNKS  # the cell behind the chunks' own


def arrival(index: int, round: int) -> tuple[int, int]:
    """The cell on which chunk `index` is announced, and what it holds when this round's is here."""
    return index, round + 1


def send(rank: Rank, landing: Window, cells: Window, own: torch.Tensor, round: int) -> None:
    """Send one's row to the right, as soon as the last one was taken there."""
    rank.wait(cells, TAKEN, round)
    right = (rank.index + 1) % rank.size
    for index in range(CHUNKS):
        start, count = chunk(own.numel(), CHUNKS, index)
        cell, _ = arrival(index, round)
        if count:
            rank.put_signal(landing, right, own[start : start + count], start, cells, cell, 1)
        else:
            rank.notify(cells, right, cell, 1)


def receive(rank: Rank, landing: Window, cells: Window, n: int, round: int) -> torch.Tensor:
    """The left neighbour's row, [n], chunk by chunk."""
    chunks = []
    for index in range(CHUNKS):
        rank.wait(cells, *arrival(index, round))
        start, count = chunk(n, CHUNKS, index)
        chunks.append(rank.load(landing, start, count))
    rank.notify(cells, (rank.index - 1) % rank.size, TAKEN, 1)
    return torch.cat(chunks)


def pipeline(
    rank: Rank, x: Buffer, out: Buffer, landing: Window, cells: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = the left neighbour's row of x; both [size, n]."""
    mine = rank.index * n
    send(rank, landing, cells, rank.load(x, mine, n), round)
    rank.store(out, receive(rank, landing, cells, n, round), mine)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(pipeline, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    landing = world.alloc([max(params.sizes)], torch.float32, name="landing")
    cells = world.alloc([CHUNKS + 1], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "row",
        lambda x, out, n, round: dispatch_round(world, x, out, landing, cells, n, round),
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"row {round}": list(inputs(size, n, round).roll(1, 0))
        for round, n in enumerate(params.sizes)
    }
