"""A probe for each checker: one small program with one place for each kind of defect.

Every rank allocates a window of its own, gives its row to its right neighbour and waits for its left
one's, polls a flag, reads the neighbour's window, and frees its own behind a barrier. Each mutant
(mutants/one_each.py) breaks one of these steps so that no other checker than its own sees it.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Rank, Window, World, values

COUNT = 4


def allocate(rank: Rank) -> Window:
    """The window that is read and freed in the end."""
    return rank.window("own", COUNT, torch.float32)


def check(rank: Rank, row: torch.Tensor) -> None:
    """Raise when the row is not what a program could go on with."""
    if row.numel() != COUNT:
        raise ValueError(f"rank {rank.index}: {row.numel()} elements")


def announce(rank: Rank, cells: Window, to: int) -> None:
    """Tell the right neighbour that its row is there."""
    rank.notify(cells, to, 0, 1)


def raise_flag(rank: Rank, cells: Window, to: int) -> None:
    """End the right neighbour's poll."""
    rank.notify(cells, to, 1, 1)


def mark(rank: Rank, board: Window) -> None:
    """Leave a mark on rank 0's board; one rank does it, and nobody reads it."""
    if rank.index == rank.size - 1:
        rank.put(board, 0, torch.ones(1), 0)


def hand_out(row: torch.Tensor) -> torch.Tensor:
    """The result."""
    return row


def settle(rank: Rank) -> None:
    """Return when nobody reads anybody's window any more."""
    rank.barrier()


def one_each(rank: Rank, inbox: Window, board: Window, cells: Window) -> torch.Tensor:
    """This rank's left neighbour's row, and its sum with what the right one keeps."""
    right = (rank.index + 1) % rank.size
    own = allocate(rank)
    rank.store(own, values(rank.index, COUNT, 1))
    rank.put(inbox, right, values(rank.index, COUNT))
    rank.fence()
    announce(rank, cells, right)
    rank.wait(cells, 0, 1)
    row = rank.load(inbox, 0, COUNT)
    check(rank, row)
    mark(rank, board)
    raise_flag(rank, cells, right)
    while rank.load(cells, 1, 1).item() < 1:
        pass
    rank.barrier()
    kept = rank.remote_load(own, right, 0, COUNT)
    settle(rank)
    own.free()
    return hand_out(row + kept)


def host(world: World, params: Any) -> None:
    """One dispatch a rank; the ranks' results are judged."""
    inbox = world.alloc([COUNT], torch.float32, name="inbox")
    board = world.alloc([COUNT], torch.float32, name="board")
    cells = world.alloc([2], torch.int32, name="cells")
    for index in range(world.size):
        world.dispatch(one_each, inbox, board, cells, device=index)


def reference(params: Any, size: int) -> dict[str, list[torch.Tensor]]:
    """What the ranks should return."""
    return {
        "result": [
            values((rank - 1) % size, COUNT) + values((rank + 1) % size, COUNT, 1)
            for rank in range(size)
        ]
    }
