"""An exchange for cores with caches: each rank stages its row, and sets a flag at each peer, a cell a
writer. Nobody else writes a writer's cell, and no two writers' cells share a 64-byte line.

A peer's row comes both ways: half by the owner's put into one's own window, half by a remote_load from
the owner's. Flags hold the number of the call, so they are set once a call and never reset; a second
round of flags, in lines of its own, says that the rows have been read. Without caches one cell after the
other would do.

Source: PyPTO's packed receive counters, overwritten by whole lines (pto-isa pull request 323).
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, NotifyOp, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

LINE_CELLS = 16  # int32 cells in 64 bytes
WIDEST = 64
RANKS_MAX = 8


def cell_of(phase: int, rank: int) -> int:
    """The cell of a writer in phase 0 (written) or 1 (read)."""
    return (phase * RANKS_MAX + rank) * LINE_CELLS


def meet(rank: Rank, cells: Window, phase: int, epoch: int) -> None:
    """Tell each peer, then wait for each."""
    peers = [peer for peer in range(rank.size) if peer != rank.index]
    for peer in peers:
        rank.notify(cells, peer, cell_of(phase, rank.index), epoch, op=NotifyOp.Set)
    for peer in peers:
        rank.wait(cells, cell_of(phase, peer), epoch)


def exchange(
    rank: Rank, x: Buffer, out: Buffer, staged: Window, inbox: Window, cells: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    row = rank.load(x, rank.index * n, n)
    for peer in range(rank.size):
        rank.put(inbox, peer, row[: n // 2], rank.index * WIDEST)
    rank.fence()
    rank.store(staged, row)  # a notify publishes it
    meet(rank, cells, 0, round + 1)
    rows = []
    for peer in range(rank.size):
        if peer == rank.index:
            rows.append(row)
            continue
        rows.append(rank.load(inbox, peer * WIDEST, n // 2))
        rows.append(rank.remote_load(staged, peer, n // 2, n - n // 2))
    rank.store(out, torch.cat(rows), rank.index * rank.size * n)
    meet(rank, cells, 1, round + 1)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(exchange, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    staged = world.alloc([WIDEST], torch.float32, name="staged")
    inbox = world.alloc([RANKS_MAX * WIDEST], torch.float32, name="inbox")
    cells = world.alloc([2 * RANKS_MAX * LINE_CELLS], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "rows",
        lambda x, out, n, round: dispatch_round(world, x, out, staged, inbox, cells, n, round),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"rows {round}": [inputs(size, n, round).reshape(-1)] * size
        for round, n in enumerate(params.sizes)
    }
