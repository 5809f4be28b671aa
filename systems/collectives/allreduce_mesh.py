"""Rung 8: all-reduce over a full mesh, in place.

Stage one's row into one's own window part; barrier; sum all parts with remote_load; barrier, so
that nobody overwrites a part that a peer still reads; store the sum over one's own part. The
shape of PyPTO's mesh all-reduce, with a row of signal cells for each of the two barriers, a cell
a peer, that count rounds and are never reset.

The next round's stage needs no barrier of its own: between the second barrier and the next round's
first one nobody reads a peer's part. Not modelled: chunks, other reductions than the sum.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

STAGED, READ = range(2)


def mesh_barrier(rank: Rank, signals: Window, row: int, epoch: int) -> None:
    """Tell every peer on the cell that stands for this rank, then wait for every peer's cell."""
    first = row * rank.size
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(signals, peer, first + rank.index, 1)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.wait(signals, first + peer, epoch)


def all_have_staged(rank: Rank, signals: Window, round: int) -> None:
    """Return when every part holds this round's row."""
    mesh_barrier(rank, signals, STAGED, round + 1)


def all_have_read(rank: Rank, signals: Window, round: int) -> None:
    """Return when every part may be overwritten."""
    mesh_barrier(rank, signals, READ, round + 1)


def reduce(rank: Rank, window: Window, n: int) -> torch.Tensor:
    """The sum of all parts, [n], in rank order."""
    total = torch.zeros(n)
    for peer in range(rank.size):
        total += rank.remote_load(window, peer, 0, n)
    return total


def allreduce(rank: Rank, window: Window, signals: Window, n: int, round: int) -> None:
    """Replace the first n elements of every part of the window by their sum over all ranks."""
    all_have_staged(rank, signals, round)
    total = reduce(rank, window, n)
    all_have_read(rank, signals, round)
    rank.store(window, total)


def allreduce_mesh(
    rank: Rank, x: Buffer, out: Buffer, window: Window, signals: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = the sum of the rows of x; both [size, n]."""
    mine = rank.index * n
    rank.store(window, rank.load(x, mine, n))
    allreduce(rank, window, signals, n, round)
    rank.store(out, rank.load(window, 0, n), mine)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(allreduce_mesh, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    window = world.alloc([max(params.sizes)], torch.float32, name="window")
    signals = world.alloc([2, world.size], torch.int32, name="signals")
    return in_rounds(
        world, params.sizes, "sum",
        lambda x, out, n, round: dispatch_round(world, x, out, window, signals, n, round),
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"sum {round}": [inputs(size, n, round).sum(0)] * size
        for round, n in enumerate(params.sizes)
    }
