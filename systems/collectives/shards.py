"""Weights loaded by shard, one a rank, and put together again from all of them.

The weights are a matrix on the host with rows * (size * n) elements; a rank's shard is n of its columns,
so it is strided there and dense in the rank's window. Every rank loads its own. Then all meet and each
reads every shard, which shows whose is wrong, and all meet again before the next load.

Source: unified-cache-management pull request 716, vllm-gguf-plugin issue 103, PyTorch issue 192920.
Not modelled: files, several loaders.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, inputs, shared

ROWS = 3


def columns(rank: Rank, weights: Buffer, n: int, index: int) -> torch.Tensor:
    """Columns index * n to (index + 1) * n of the weights, [ROWS, n]."""
    stride = rank.size * n
    return torch.stack(
        [rank.load(weights, row * stride + index * n, n) for row in range(ROWS)]
    )


def read_shard(rank: Rank, weights: Buffer, n: int, index: int = 0) -> torch.Tensor:
    """The shard of rank `index`, dense, [ROWS * n]."""
    return columns(rank, weights, n, index).reshape(-1)


def own_shard(rank: Rank, weights: Buffer, n: int) -> torch.Tensor:
    """This rank's shard."""
    return read_shard(rank, weights, n, rank.index)


def load(rank: Rank, weights: Buffer, shard: Window, n: int) -> None:
    """Fill one's part of the window with one's shard."""
    rank.store(shard, own_shard(rank, weights, n))


def shards(rank: Rank, weights: Buffer, out: Buffer, shard: Window, n: int) -> None:
    """Row `rank.index` of out = all shards in rank order. weights: [ROWS, size * n]."""
    load(rank, weights, shard, n)
    rank.sync()
    count = ROWS * n
    found = [rank.remote_load(shard, peer, 0, count) for peer in range(rank.size)]
    rank.store(out, torch.cat(found), rank.index * rank.size * count)
    rank.sync()


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(shards, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank; a round's size is the columns of a shard."""
    shard = world.alloc([ROWS * max(params.sizes)], torch.float32, name="shard")
    observed = {}
    for round, n in enumerate(params.sizes):
        weights = shared(inputs(ROWS, world.size * n, round))
        out = shared(torch.zeros(world.size, world.size * ROWS * n))
        world.prepare(weights, out)
        dispatch_round(world, weights, out, shard, n)
        observed[f"shards {round}"] = list(out)
    return observed


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        weights = inputs(ROWS, size * n, round)
        expected[f"shards {round}"] = [weights.reshape(ROWS, size, n).transpose(0, 1).reshape(-1)] * size
    return expected
