"""Rung 9: all-reduce in two phases, reduce-scatter and then all-gather.

The row is cut into a chunk a rank, at floor(i * n / size). Phase one puts each chunk to the rank that
is to reduce it, phase two puts each reduced chunk to every rank. The ranks meet after either phase, on a
row of cells of its own: a cell a peer, that counts rounds and is never reset.

No other barrier is needed. Who has passed the second meeting knows that all have reduced, so the parts
may be overwritten; who has passed the next round's first one knows that all have read their result. A
fence before the notifies is enough, as each cell has one writer. Sizes that `size` does not divide, and
empty chunks, are nothing special. Not modelled: other reductions than the sum.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, Sizes, in_rounds, inputs

SCATTERED, GATHERED = range(2)


class ChunkedRounds(Rounds, frozen=True, forbid_unknown_fields=True):
    """Rounds whose defaults leave a remainder and, from two ranks on, empty chunks."""

    sizes: Sizes = (7, 1)


def chunk(n: int, size: int, index: int) -> tuple[int, int]:
    """Where chunk `index` of `size` chunks of n elements begins, and how many elements it has."""
    start = index * n // size
    return start, (index + 1) * n // size - start


def signal_row(phase: int) -> int:
    """The row of cells on which the ranks meet after a phase."""
    return phase


def meet(rank: Rank, signals: Window, phase: int, epoch: int) -> None:
    """Return when all that any rank put here in `phase` is here. epoch: 1 in the first round."""
    first = signal_row(phase) * rank.size
    rank.fence()
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(signals, peer, first + rank.index, 1)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.wait(signals, first + peer, epoch)


def scatter(rank: Rank, parts: Window, own: torch.Tensor) -> None:
    """Put each chunk of one's row to the rank that reduces it, in the row of `parts` that is ours."""
    at = rank.index * parts.shape[1]
    for index in range(rank.size):
        start, count = chunk(own.numel(), rank.size, index)
        piece = own[start : start + count]
        if index == rank.index:
            rank.store(parts, piece, at)
        else:
            rank.put(parts, index, piece, at)


def reduce(rank: Rank, parts: Window, count: int) -> torch.Tensor:
    """The sum of the chunks that all ranks have put here, [count], in rank order."""
    total = torch.zeros(count)
    for peer in range(rank.size):
        total += rank.load(parts, peer * parts.shape[1], count)
    return total


def gather(rank: Rank, whole: Window, total: torch.Tensor, start: int) -> None:
    """Put one's reduced chunk to every rank."""
    rank.store(whole, total, start)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.put(whole, peer, total, start)


def allreduce(
    rank: Rank, parts: Window, whole: Window, signals: Window, own: torch.Tensor, round: int
) -> None:
    """The first elements of every rank's `whole` = the sum of all ranks' `own`."""
    start, count = chunk(own.numel(), rank.size, rank.index)
    scatter(rank, parts, own)
    meet(rank, signals, SCATTERED, round + 1)
    gather(rank, whole, reduce(rank, parts, count), start)
    meet(rank, signals, GATHERED, round + 1)


def allreduce_twophase(
    rank: Rank,
    x: Buffer,
    out: Buffer,
    parts: Window,
    whole: Window,
    signals: Window,
    n: int,
    round: int,
) -> None:
    """Row `rank.index` of out = the sum of the rows of x; both [size, n]."""
    mine = rank.index * n
    allreduce(rank, parts, whole, signals, rank.load(x, mine, n), round)
    rank.store(out, rank.load(whole, 0, n), mine)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(allreduce_twophase, *args, device=r)


def host(world: World, params: ChunkedRounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    longest = max(params.sizes)
    longest_chunk = -(-longest // world.size)
    parts = world.alloc([world.size, longest_chunk], torch.float32, name="parts")
    whole = world.alloc([longest], torch.float32, name="whole")
    signals = world.alloc([2, world.size], torch.int32, name="signals")
    return in_rounds(
        world, params.sizes, "sum",
        lambda x, out, n, round: dispatch_round(world, x, out, parts, whole, signals, n, round),
    )


def reference(params: ChunkedRounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"sum {round}": [inputs(size, n, round).sum(0)] * size
        for round, n in enumerate(params.sizes)
    }
