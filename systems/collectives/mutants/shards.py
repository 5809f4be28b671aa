"""Mutants of the shards: somebody else's, nobody's, or one that is no shard."""

from __future__ import annotations

import torch

from harness import Buffer, Rank, Window, mutant
from systems.collectives import shards as twin


@mutant(of=twin.load, expects="integrity/unwritten_memory", ranks=2)
def only_rank_zero_loads(rank: Rank, weights: Buffer, shard: Window, n: int) -> None:
    """Rank 0 alone loads, as it did when it broadcast what it had loaded.

    Source: unified-cache-management pull request 716. Finding: integrity/unwritten_memory (in a later
    round, a stale shard). Smallest world: 2.
    """
    if rank.index == 0:
        rank.store(shard, twin.own_shard(rank, weights, n))


@mutant(of=twin.own_shard, expects="integrity/wrong_value", ranks=2)
def rank_left_at_its_default(rank: Rank, weights: Buffer, n: int) -> torch.Tensor:
    """The reader's rank argument is not passed on and defaults to 0.

    Source: vllm-gguf-plugin issue 103. Finding: integrity/wrong_value, all ranks have shard 0. Smallest
    world: 2.
    """
    return twin.read_shard(rank, weights, n)


@mutant(of=twin.columns, expects="integrity/wrong_value", ranks=2)
def strided_read_as_dense(rank: Rank, weights: Buffer, n: int, index: int) -> torch.Tensor:
    """Base and count of the columns are passed on, their stride is not.

    Source: PyTorch issue 192920. Finding: integrity/wrong_value, the beginning of a row where columns
    are due; with one rank a shard is dense. Smallest world: 2.
    """
    return rank.load(weights, index * n, [twin.ROWS, n])
