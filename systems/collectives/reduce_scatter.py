"""Rung 14: reduce-scatter by pull, for sizes that the world size does not divide.

Rank i keeps the sum of chunk i of all rows; chunk i is [floor(i*n/P), floor((i+1)*n/P)), which
covers any n without a remainder. With fewer elements than ranks some chunks are empty: their ranks
have nothing to add up, but take part in the rest, as their rows are read and others wait for them.

Each rank stages its row in its window part and tells each peer; a peer reads its chunk as soon as
it has heard of this one row, and says when it has read. A row is staged anew only when all peers
have read the last one. Cells are a cell a peer and count rounds; there is no barrier.

Not modelled: other reductions than the sum; chunks rounded up to a multiple of bytes, as narrow
types need them on cards.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.allreduce_twophase import chunk
from systems.collectives.rounds import Rounds, Sizes, in_rounds, inputs

STAGED, READ = range(2)  # rows of cells, a cell a peer


class Uneven(Rounds, frozen=True, forbid_unknown_fields=True):
    """As Rounds, but in any world of several ranks the last rounds leave some chunks empty."""

    sizes: Sizes = (7, 1, 1)


def bounds(n: int, size: int, index: int) -> tuple[int, int]:
    """First element of chunk `index` and the one behind its last; n elements in `size` chunks."""
    start, count = chunk(n, size, index)
    return start, start + count


def tell(rank: Rank, cells: Window, row: int) -> None:
    """Count one up in every peer's row of cells, on the cell that stands for this rank."""
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(cells, peer, row * rank.size + rank.index, 1)


def await_read(rank: Rank, cells: Window, round: int) -> None:
    """Return when every peer has read its chunk of this rank's rows of all earlier rounds."""
    for peer in range(rank.size):
        if peer != rank.index:
            rank.wait(cells, READ * rank.size + peer, round)


def await_staged(rank: Rank, cells: Window, source: int, round: int) -> None:
    """Return when the window part of `source` holds its row of this round."""
    if source != rank.index:
        rank.wait(cells, STAGED * rank.size + source, round + 1)


def stage(rank: Rank, staged: Window, cells: Window, own: torch.Tensor) -> None:
    """Show one's row to all. A store acts at once: no fence is needed."""
    rank.store(staged, own)
    tell(rank, cells, STAGED)


def summands(rank: Rank) -> list[int]:
    """The ranks whose rows are added up."""
    return list(range(rank.size))


def chunk_of(rank: Rank, staged: Window, source: int, n: int) -> torch.Tensor:
    """This rank's chunk of the row of `source`."""
    lo, hi = bounds(n, rank.size, rank.index)
    return rank.remote_load(staged, source, lo, hi - lo)


def reduce(rank: Rank, staged: Window, cells: Window, n: int, round: int) -> torch.Tensor:
    """The sum of this rank's chunk over all rows, in rank order."""
    lo, hi = bounds(n, rank.size, rank.index)
    total = torch.zeros(hi - lo)
    for source in summands(rank):
        await_staged(rank, cells, source, round)
        total += chunk_of(rank, staged, source, n)
    return total


def tell_read(rank: Rank, cells: Window, elements: int) -> None:
    """Say that one's chunk, of so many elements, was read: also if that was nothing."""
    tell(rank, cells, READ)


def reduce_scatter(
    rank: Rank, x: Buffer, out: Buffer, staged: Window, cells: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out gets the sum of this rank's chunk, in its place. x, out: [size, n]."""
    mine = rank.index * n
    lo, hi = bounds(n, rank.size, rank.index)
    await_read(rank, cells, round)
    stage(rank, staged, cells, rank.load(x, mine, n))
    if lo < hi:
        rank.store(out, reduce(rank, staged, cells, n, round), mine + lo)
    tell_read(rank, cells, hi - lo)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(reduce_scatter, *args, device=r)


def host(world: World, params: Uneven) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round: a rank's chunk in its place, zeros around it."""
    staged = world.alloc([max(params.sizes)], torch.float32, name="staged")
    cells = world.alloc([2, world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "chunk",
        lambda x, out, n, round: dispatch_round(world, x, out, staged, cells, n, round),
    )


def reference(params: Uneven, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        rows = torch.zeros(size, n)
        for index, row in enumerate(rows):
            lo, hi = bounds(n, size, index)
            row[lo:hi] = inputs(size, n, round)[:, lo:hi].sum(0)
        expected[f"chunk {round}"] = list(rows)
    return expected
