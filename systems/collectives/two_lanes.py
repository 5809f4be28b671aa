"""An all-gather whose ranks have two lanes: one sends, one receives.

Lane 0 puts the rank's row on every board and announces it; lane 1 waits for each row, copies it out
and gives a credit back. A row of the next round is put only when its reader has given the credit for
the last one. The lanes share the rank's windows and meet at the end of each dispatch; in between
nothing orders them but the cells. A fence is its lane's own, so the lane that puts must fence.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

ARRIVED, READ = range(2)
LANES = 2


def sends(rank: Rank) -> bool:
    """Whether this lane is the one that sends."""
    return rank.lane == 0


def await_credit(rank: Rank, cells: Window, peer: int, round: int) -> None:
    """Return when `peer` has read this rank's rows of all rounds before."""
    rank.wait(cells, READ * rank.size + peer, round)


def announce(rank: Rank, cells: Window, peer: int) -> None:
    """Tell `peer` that this rank's row is on its board."""
    rank.fence()
    rank.notify(cells, peer, ARRIVED * rank.size + rank.index, 1)


def send(rank: Rank, row: torch.Tensor, board: Window, cells: Window, room: int, round: int) -> None:
    """Put the row at this rank's place on every board. room: elements of a place."""
    for peer in range(rank.size):
        await_credit(rank, cells, peer, round)
        rank.put(board, peer, row, rank.index * room)
        announce(rank, cells, peer)


def take(rank: Rank, board: Window, cells: Window, source: int, at: int, n: int) -> torch.Tensor:
    """Copy a row out, then let its source send the next one."""
    row = rank.load(board, at, n)
    rank.notify(cells, source, READ * rank.size + rank.index, 1)
    return row


def receive(
    rank: Rank, board: Window, cells: Window, room: int, n: int, round: int
) -> torch.Tensor:
    """All rows of this round, [size * n]."""
    rows = []
    for source in range(rank.size):
        rank.wait(cells, ARRIVED * rank.size + source, round + 1)
        rows.append(take(rank, board, cells, source, source * room, n))
    return torch.cat(rows)


def two_lanes(
    rank: Rank, x: Buffer, out: Buffer, board: Window, cells: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = all rows of x; one lane's part of it."""
    room = board.shape[1]
    if sends(rank):
        send(rank, rank.load(x, rank.index * n, n), board, cells, room, round)
    else:
        count = rank.size * n
        rank.store(out, receive(rank, board, cells, room, n, round), rank.index * count)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank, with two lanes."""
    for r in range(len(world.device_ids)):
        world.dispatch(two_lanes, *args, device=r, lanes=LANES)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    board = world.alloc([world.size, max(params.sizes)], torch.float32, name="board")
    cells = world.alloc([2, world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "rows",
        lambda x, out, n, round: dispatch_round(world, x, out, board, cells, n, round),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"rows {round}": [inputs(size, n, round).reshape(-1)] * size
        for round, n in enumerate(params.sizes)
    }
