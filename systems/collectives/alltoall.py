"""Rung 15: all-to-all, straight out of one window into another.

Block t of rank s becomes block s of rank t. Each rank fills its outbox and has every block written
from there into its target's inbox: put_nbi copies nothing, the outbox stays in use until quiet.
Then the notifies may follow, and the next round may fill the outbox again, while the inboxes of the
peers are still being read. A block is written only when its target has taken the last one from the
same place. Places do not move with n: one that did would overlap another source's place of the last
round, and that source's block need not have been taken. Cells are a cell a peer and count rounds.

Outbox and inbox are two windows: in one, a block that arrives early would overwrite one that is yet
to be sent. The ragged form is in alltoallv.py.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

ARRIVED, TAKEN = range(2)  # rows of cells, a cell a peer


def arrived_cell(rank: Rank, source: int) -> int:
    """The cell on which a rank counts the blocks of `source`."""
    return ARRIVED * rank.size + source


def place(inbox: Window, source: int, target: int, n: int) -> int:
    """The element of the target's inbox at which the block of `source`, n elements, begins."""
    return source * inbox.shape[1]


def await_taken(rank: Rank, cells: Window, round: int) -> None:
    """Return when every peer has taken this rank's block of all earlier rounds."""
    for peer in range(rank.size):
        rank.wait(cells, TAKEN * rank.size + peer, round)


def settle(rank: Rank) -> None:
    """Return when the outbox has been read and every block has been delivered."""
    rank.quiet()


def send(rank: Rank, outbox: Window, inbox: Window, cells: Window, n: int) -> None:
    """Block t of the outbox goes to rank t, this rank included; then all are told."""
    for target in range(rank.size):
        block = outbox.view([n], torch.float32, target * n * outbox.itemsize)
        rank.put_nbi(inbox, target, block, place(inbox, rank.index, target, n))
    settle(rank)
    for target in range(rank.size):
        rank.notify(cells, target, arrived_cell(rank, rank.index), 1)


def receive(rank: Rank, inbox: Window, cells: Window, n: int, round: int) -> torch.Tensor:
    """The blocks of all ranks in rank order, [size * n]; each place is free again as it is read."""
    blocks = []
    for source in range(rank.size):
        rank.wait(cells, arrived_cell(rank, source), round + 1)
        blocks.append(rank.load(inbox, place(inbox, source, rank.index, n), n))
        rank.notify(cells, source, TAKEN * rank.size + rank.index, 1)
    return torch.cat(blocks)


def alltoall(
    rank: Rank,
    x: Buffer,
    out: Buffer,
    outbox: Window,
    inbox: Window,
    cells: Window,
    n: int,
    round: int,
) -> None:
    """Row `rank.index` of out = block `rank.index` of all rows of x. Both [size, size * n]."""
    count = rank.size * n
    rank.store(outbox, rank.load(x, rank.index * count, count))
    await_taken(rank, cells, round)
    send(rank, outbox, inbox, cells, n)
    rank.store(out, receive(rank, inbox, cells, n, round), rank.index * count)


def data_windows(world: World, n: int) -> tuple[Any, Any]:
    """Outbox and inbox, blocks of up to n elements to and from every rank."""
    outbox = world.alloc([world.size, n], torch.float32, name="outbox")
    inbox = world.alloc([world.size, n], torch.float32, name="inbox")
    return outbox, inbox


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(alltoall, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    outbox, inbox = data_windows(world, max(params.sizes))
    cells = world.alloc([2, world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "blocks",
        lambda x, out, n, round: dispatch_round(world, x, out, outbox, inbox, cells, n, round),
        given=world.size, taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"blocks {round}": list(
            inputs(size, size * n, round).reshape(size, size, n).transpose(0, 1).reshape(size, -1)
        )
        for round, n in enumerate(params.sizes)
    }
