"""Rung 13: all-gather by push, with credits that are given back.

Each rank puts its row into every peer's window, at the place of its own number, and notifies. A
cell a peer holds a credit: wait for 1, then notify oneself with -1. So a cell is at zero between
calls however often it is used, and no rank program has to know how often that was. The shape of
PyPTO's barrier, whose epilogue gives back what it has waited for.

Giving back is a one-sided operation as any other and may be late, so quiet follows: a credit that
is still there when the next call waits would let it pass at once. A second row of credits says that
all have read, which PyPTO's all-gather leaves to its caller: the next call overwrites the rows.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

ARRIVED, READ = range(2)  # rows of cells, a cell a peer


def peers(rank: Rank) -> list[int]:
    """All ranks but this one."""
    return [peer for peer in range(rank.size) if peer != rank.index]


def slot(rank: Rank, peer: int, n: int) -> int:
    """The element of `peer`'s window at which this rank's row of n elements begins."""
    return rank.index * n


def push(rank: Rank, gathered: Window, own: torch.Tensor) -> None:
    """Write one's row into every window, one's own included."""
    n = own.numel()
    rank.store(gathered, own, slot(rank, rank.index, n))
    for peer in peers(rank):
        rank.put(gathered, peer, own, slot(rank, peer, n))


def tell(rank: Rank, cells: Window, row: int) -> None:
    """Give every peer one credit, behind all that was put to it before."""
    rank.fence()
    for peer in peers(rank):
        rank.notify(cells, peer, row * rank.size + rank.index, 1)


def give_back(rank: Rank, cells: Window, row: int) -> None:
    """Take the awaited credits off one's own cells, and see to it that they are gone."""
    for peer in peers(rank):
        rank.notify(cells, rank.index, row * rank.size + peer, -1)
    rank.quiet()


def await_credits(rank: Rank, cells: Window, row: int) -> None:
    """Return when every peer has given its credit, with the cells of the row at zero again."""
    for peer in peers(rank):
        rank.wait(cells, row * rank.size + peer, 1)
    give_back(rank, cells, row)


def all_have_read(rank: Rank, cells: Window) -> None:
    """Return when the rows may be overwritten."""
    tell(rank, cells, READ)
    await_credits(rank, cells, READ)


def allgather(rank: Rank, gathered: Window, cells: Window, own: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks in rank order, [size * n]. gathered: size * n elements or more."""
    push(rank, gathered, own)
    tell(rank, cells, ARRIVED)
    await_credits(rank, cells, ARRIVED)
    rows = rank.load(gathered, 0, rank.size * own.numel())
    all_have_read(rank, cells)
    return rows


def gather_rows(
    rank: Rank, x: Buffer, out: Buffer, gathered: Window, cells: Window, n: int
) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    rows = allgather(rank, gathered, cells, rank.load(x, rank.index * n, n))
    rank.store(out, rows, rank.index * rank.size * n)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(gather_rows, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    gathered = world.alloc([world.size, max(params.sizes)], torch.float32, name="gathered")
    cells = world.alloc([2, world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "gathered",
        lambda x, out, n, round: dispatch_round(world, x, out, gathered, cells, n),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"gathered {round}": [inputs(size, n, round).reshape(-1)] * size
        for round, n in enumerate(params.sizes)
    }
