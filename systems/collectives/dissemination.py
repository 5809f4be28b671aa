"""A dissemination barrier: everybody hears of everybody in ceil(log2(P)) steps, for any P.

In the step with distance d a rank tells rank r + d and waits for rank r - d, both modulo the team's
size. Cells are one a step, with one writer each, and count calls. Teams alternate: all ranks, then all
but the last one, each with cells of its own, since a cell's writer depends on the size of the team.

The workload: each member stages its row, all meet, each reads all the members' rows, all meet again.
A store acts at once, so what a rank has heard of it may read. Source: torchcomms pull request 3213.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

STEPS = 3  # enough for 8 ranks


def team_of(size: int, round: int) -> int:
    """How many ranks, from rank 0 on, take part in a round."""
    return size if round % 2 == 0 else max(size - 1, 1)


def distances(size: int) -> list[int]:
    """The distance of each step: the powers of two below `size`."""
    return [1 << step for step in range((size - 1).bit_length())]


def exchange(
    rank: Rank, cells: Window, size: int, cell: int, distance: int, epoch: int
) -> None:
    """One step: tell the rank `distance` ahead, wait for the one `distance` behind."""
    rank.notify(cells, (rank.index + distance) % size, cell, 1)
    rank.wait(cells, cell, epoch)


def meet(rank: Rank, cells: Window, size: int, first: int, epoch: int) -> None:
    """The barrier of ranks 0 to size - 1. first: its first cell. epoch: its calls, this one included."""
    for step, distance in enumerate(distances(size)):
        exchange(rank, cells, size, first + step, distance, epoch)


def dissemination(
    rank: Rank, x: Buffer, out: Buffer, staged: Window, cells: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = the rows of the members. x: [size, n], out: [size, size * n]."""
    size = team_of(rank.size, round)
    if rank.index >= size:
        return
    first, epoch = round % 2 * STEPS, round // 2 * 2
    rank.store(staged, rank.load(x, rank.index * n, n))
    meet(rank, cells, size, first, epoch + 1)
    rows = [rank.remote_load(staged, peer, 0, n) for peer in range(size)]
    rank.store(out, torch.cat(rows), rank.index * rank.size * n)
    meet(rank, cells, size, first, epoch + 2)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(dissemination, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank, zeros where a rank took no part."""
    staged = world.alloc([max(params.sizes)], torch.float32, name="staged")
    cells = world.alloc([2, STEPS], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "rows",
        lambda x, out, n, round: dispatch_round(world, x, out, staged, cells, n, round),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        team = team_of(size, round)
        rows = torch.zeros(size, size * n)
        rows[:team, : team * n] = inputs(size, n, round)[:team].reshape(-1)
        expected[f"rows {round}"] = list(rows)
    return expected
