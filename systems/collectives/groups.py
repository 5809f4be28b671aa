"""All-gathers in two groups that overlap, on one window of rows and one of signals.

The groups are the ranks with even and with odd numbers; the last rank is in both. A member has a place
in its group and a number in the world: places say where its row and its signals go, numbers whom a
put reaches. Each group has rows and cells of its own, so what one is told never counts in the other.
Cells are one a member, for "arrived" and for "read", and count rounds.

Source: PyTorch issue 192581 (two groups on one signal pad), pypto.md 5.4, pattern 16.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

GROUPS = 2
ARRIVED, READ = range(2)
Members = tuple[int, ...]


def members_of(group: int, size: int) -> Members:
    """The ranks of group 0 (even) or 1 (odd), in order, the last rank in both."""
    return tuple(r for r in range(size) if r % GROUPS == group or r == size - 1)


def slot(group: int, row: int, place: int, size: int) -> int:
    """The cell on which a group's member at `place` is heard of."""
    return (group * 2 + row) * size + place


def peer_at(members: Members, place: int) -> int:
    """The number in the world of a group's member."""
    return members[place]


def tell(rank: Rank, cells: Window, group: int, members: Members, row: int) -> None:
    """Tell every other member, behind all that was put to it before."""
    here = members.index(rank.index)
    rank.fence()
    for place in range(len(members)):
        if place != here:
            rank.notify(cells, peer_at(members, place), slot(group, row, here, rank.size), 1)


def hear(rank: Rank, cells: Window, group: int, members: Members, row: int, epoch: int) -> None:
    """Return when every other member has told `epoch` times."""
    for place, peer in enumerate(members):
        if peer != rank.index:
            rank.wait(cells, slot(group, row, place, rank.size), epoch)


def gather(
    rank: Rank, rows: Window, cells: Window, own: torch.Tensor, group: int, round: int
) -> torch.Tensor:
    """The rows of all members in order, [members * n]. rows: [GROUPS, size, longest row]."""
    members = members_of(group, rank.size)
    here = members.index(rank.index)
    n = own.numel()
    at = group * rows.shape[1] * rows.shape[2]
    rank.store(rows, own, at + here * n)
    for place in range(len(members)):
        if place != here:
            rank.put(rows, peer_at(members, place), own, at + here * n)
    tell(rank, cells, group, members, ARRIVED)
    hear(rank, cells, group, members, ARRIVED, round + 1)
    gathered = rank.load(rows, at, len(members) * n)
    tell(rank, cells, group, members, READ)
    hear(rank, cells, group, members, READ, round + 1)
    return gathered


def groups(
    rank: Rank, x: Buffer, out: Buffer, rows: Window, cells: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = what its groups gathered, [size, GROUPS * size * n]. x: [size, n]."""
    own = rank.load(x, rank.index * n, n)
    for group in range(GROUPS):
        if rank.index in members_of(group, rank.size):
            gathered = gather(rank, rows, cells, own, group, round)
            rank.store(out, gathered, (rank.index * GROUPS + group) * rank.size * n)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(groups, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank, zeros for a group that a rank is not in."""
    rows = world.alloc([GROUPS, world.size, max(params.sizes)], torch.float32, name="rows")
    cells = world.alloc([GROUPS, 2, world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "rows",
        lambda x, out, n, round: dispatch_round(world, x, out, rows, cells, n, round),
        taken=GROUPS * world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        out = torch.zeros(size, GROUPS, size * n)
        for group in range(GROUPS):
            members = list(members_of(group, size))
            out[members, group, : len(members) * n] = inputs(size, n, round)[members].reshape(-1)
        expected[f"rows {round}"] = list(out.reshape(size, -1))
    return expected
