"""Rung 4: a barrier of N ranks made of notify and wait, used again and again.

Every rank has one cell on which all its peers count up. A rank that calls the barrier for the e-th
time waits until its cell holds e arrivals of each peer; the count never goes back, so there is
nothing to reset between uses. A count cannot tell whose arrivals it holds: a fast peer's next
arrival may stand in for a slow peer's that is still on its way. That is safe because nobody leaves
before all have arrived, and because an arrival is announced only when all that its rank put has
been delivered everywhere (quiet). A fence would order the puts per target only.

The workload: everybody puts its row on everybody's board, meets, reads its own board, and meets
again before the boards may be overwritten.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs


def settle(rank: Rank) -> None:
    """Return when everything that this rank put has been delivered."""
    rank.quiet()


def arrive_and_wait(rank: Rank, arrivals: Window, epoch: int) -> None:
    """Announce this rank's `epoch`-th arrival to all peers; return when all theirs are counted."""
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(arrivals, peer, 0, 1)
    rank.wait(arrivals, 0, epoch * (rank.size - 1))


def meet(rank: Rank, arrivals: Window, epoch: int) -> None:
    """The barrier. arrivals: one cell. epoch: how often it has been called, this call included."""
    settle(rank)
    arrive_and_wait(rank, arrivals, epoch)


def post(rank: Rank, board: Window, own: torch.Tensor) -> None:
    """Put one's row on every board, at one's own place."""
    at = rank.index * own.numel()
    rank.store(board, own, at)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.put(board, peer, own, at)


def barrier(
    rank: Rank, x: Buffer, out: Buffer, board: Window, arrivals: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = all rows of x, as they stand on one's board after the barrier."""
    post(rank, board, rank.load(x, rank.index * n, n))
    meet(rank, arrivals, 2 * round + 1)
    count = rank.size * n
    rank.store(out, rank.load(board, 0, count), rank.index * count)
    meet(rank, arrivals, 2 * round + 2)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(barrier, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    board = world.alloc([world.size, max(params.sizes)], torch.float32, name="board")
    arrivals = world.alloc([1], torch.int32, name="arrivals")
    return in_rounds(
        world, params.sizes, "board",
        lambda x, out, n, round: dispatch_round(world, x, out, board, arrivals, n, round),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"board {round}": [inputs(size, n, round).reshape(-1)] * size
        for round, n in enumerate(params.sizes)
    }
