"""A barrier whose credits are given back: one row of cells, the same for every call.

A rank gives each peer one credit, waits for one of each peer, and takes back exactly these. A cell is
then at zero, or at what a fast peer has already given for the next call: giving and taking both add, so
they commute, and no call has to know how many there were before. Quiet follows, as a credit still there
when the next call waits would let it pass. One writer a cell and a fence per target suffice here.

The workload is rung 4's: rows put on every board, a meeting, the board read, another meeting.
Source: the barrier of PyPTO's collectives as reworked after pypto pull requests 2175 and 2279.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives import barrier
from systems.collectives.barrier import post
from systems.collectives.rounds import Rounds, in_rounds

reference = barrier.reference


def peers(rank: Rank) -> list[int]:
    """All ranks but this one."""
    return [peer for peer in range(rank.size) if peer != rank.index]


def arrive(rank: Rank, cells: Window) -> None:
    """Give every peer one credit, behind all that was put to it before."""
    rank.fence()
    for peer in peers(rank):
        rank.notify(cells, peer, rank.index, 1)


def await_peers(rank: Rank, cells: Window) -> None:
    """Return when every peer has given its credit."""
    for peer in peers(rank):
        rank.wait(cells, peer, 1)


def give_back(rank: Rank, cells: Window) -> None:
    """Take the awaited credits off one's own cells, and see to it that they are gone."""
    for peer in peers(rank):
        rank.notify(cells, rank.index, peer, -1)
    rank.quiet()


def meet(rank: Rank, cells: Window) -> None:
    """The barrier. cells: one for each rank; the one that stands for oneself stays unused."""
    arrive(rank, cells)
    await_peers(rank, cells)
    give_back(rank, cells)


def credit_barrier(rank: Rank, x: Buffer, out: Buffer, board: Window, cells: Window, n: int) -> None:
    """Row `rank.index` of out = all rows of x, as they stand on one's board after the barrier."""
    post(rank, board, rank.load(x, rank.index * n, n))
    meet(rank, cells)
    count = rank.size * n
    rank.store(out, rank.load(board, 0, count), rank.index * count)
    meet(rank, cells)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(credit_barrier, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    board = world.alloc([world.size, max(params.sizes)], torch.float32, name="board")
    cells = world.alloc([world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "board",
        lambda x, out, n, round: dispatch_round(world, x, out, board, cells, n),
        taken=world.size,
    )
