"""Rung 3: a window, one part of which every rank owns and all ranks reach.

Each rank writes its row into its own part; behind a barrier everybody reads everybody's part; a
second barrier keeps the next round from overwriting a part that a peer still reads. The host
allocates bytes once, for the longest round, and gives them a shape with a view.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs


def publish(rank: Rank, window: Window, own: torch.Tensor) -> None:
    """Write `own` into this rank's part of the window."""
    rank.store(window, own)


def row_of(rank: Rank, x: Buffer, window: Window, peer: int, n: int) -> torch.Tensor:
    """The row of `peer`: one's own comes from the plain tensor, a peer's from its window part."""
    if peer == rank.index:
        return rank.load(x, peer * n, n)
    return rank.remote_load(window, peer, 0, n)


def gather(rank: Rank, x: Buffer, window: Window, n: int) -> torch.Tensor:
    """All rows, [size * n], once every rank has published."""
    rank.barrier()
    return torch.cat([row_of(rank, x, window, peer, n) for peer in range(rank.size)])


def all_have_read(rank: Rank) -> None:
    """Return when the window parts may be overwritten."""
    rank.barrier()


def window_buffer(rank: Rank, x: Buffer, out: Buffer, window: Window, n: int) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    publish(rank, window, rank.load(x, rank.index * n, n))
    rows = gather(rank, x, window, n)
    rank.store(out, rows, rank.index * rank.size * n)
    all_have_read(rank)


def window_bytes(world: World, n: int) -> int:
    """The size of one rank's part in bytes: `n` float32. The world size does not enter."""
    return n * torch.float32.itemsize


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(window_buffer, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    longest = max(params.sizes)
    memory = world.alloc(window_bytes(world, longest), name="window", init="poison")
    window = memory.view([longest], torch.float32)
    return in_rounds(
        world, params.sizes, "gathered",
        lambda x, out, n, round: dispatch_round(world, x, out, window, n),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"gathered {round}": [inputs(size, n, round).reshape(-1)] * size
        for round, n in enumerate(params.sizes)
    }
