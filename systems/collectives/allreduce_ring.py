"""Rung 10: all-reduce around a ring, in place, in 2 * (size - 1) steps.

Every rank stages its row in its part of the window, cut at floor(i * n / size). In each step a rank
tells its right neighbour that a chunk is ready and pulls the left one's: in the first half it adds that
chunk to its own, in the second it overwrites its own with the finished one. A step has a row of one
cell, which counts rounds and is never reset.

Inside a round no chunk is overwritten early: a finished chunk has come by way of every rank that had to
read the unfinished one. Between rounds the row behind the last step's serves: a rank leaves only when its
right neighbour has pulled the last chunk, so on return nobody reads its part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.allreduce_twophase import chunk
from systems.collectives.rounds import Rounds, in_rounds, inputs

REDUCE, GATHER, LEAVE = range(3)
Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def right_of(rank: Rank) -> int:
    """The neighbour that pulls from this rank."""
    return (rank.index + 1) % rank.size


def left_of(rank: Rank) -> int:
    """The neighbour from which this rank pulls."""
    return (rank.index - 1) % rank.size


def signal_shape(size: int) -> list[int]:
    """A row of one cell for each step, and one for the end."""
    return [2 * (size - 1) + 1, 1]


def row_of(rank: Rank, phase: int, step: int) -> int:
    """The row of signals of a step of a phase; phases have size - 1 steps, the last one has one."""
    return phase * (rank.size - 1) + step


def cell_of(rank: Rank, signals: Window, phase: int, step: int) -> int:
    """The first cell of that row."""
    return row_of(rank, phase, step) * signals.shape[1]


def announce(rank: Rank, signals: Window, peer: int, phase: int, step: int) -> None:
    """Tell a neighbour that this rank is ready for a step. What was stored acts at once: no fence."""
    rank.notify(signals, peer, cell_of(rank, signals, phase, step), 1)


def await_neighbour(rank: Rank, signals: Window, phase: int, step: int, round: int) -> None:
    """Return when the neighbour has announced the step: the left one, in LEAVE the right one."""
    rank.wait(signals, cell_of(rank, signals, phase, step), round + 1)


def pull(rank: Rank, window: Window, n: int, index: int) -> tuple[int, torch.Tensor]:
    """Where chunk `index` (modulo size) begins, and the left neighbour's elements of it."""
    start, count = chunk(n, rank.size, index % rank.size)
    return start, rank.remote_load(window, left_of(rank), start, count)


def write(rank: Rank, window: Window, start: int, elements: torch.Tensor) -> None:
    """Write elements into one's own part of the window, from `start` on."""
    rank.store(window, elements, start)


def reduce_step(rank: Rank, window: Window, n: int, step: int, combine: Combine) -> None:
    """Combine the chunk that has come `step` + 1 ranks far with one's own."""
    start, received = pull(rank, window, n, rank.index - step - 1)
    own = rank.load(window, start, received.numel())
    write(rank, window, start, combine(own, received))


def gather_step(rank: Rank, window: Window, n: int, step: int) -> None:
    """Replace one's own chunk by the finished one."""
    start, received = pull(rank, window, n, rank.index - step)
    write(rank, window, start, received)


def leave(rank: Rank, signals: Window, round: int) -> None:
    """Tell the left neighbour that all was pulled; return when the right one has said so."""
    announce(rank, signals, left_of(rank), LEAVE, 0)
    await_neighbour(rank, signals, LEAVE, 0, round)


def allreduce(
    rank: Rank, window: Window, signals: Window, n: int, round: int, combine: Combine = torch.add
) -> None:
    """Replace the first n elements of every part of the window by the combination of all ranks'."""
    for step in range(rank.size - 1):
        announce(rank, signals, right_of(rank), REDUCE, step)
        await_neighbour(rank, signals, REDUCE, step, round)
        reduce_step(rank, window, n, step, combine)
    for step in range(rank.size - 1):
        announce(rank, signals, right_of(rank), GATHER, step)
        await_neighbour(rank, signals, GATHER, step, round)
        gather_step(rank, window, n, step)
    if rank.size > 1:
        leave(rank, signals, round)


def allreduce_ring(
    rank: Rank, x: Buffer, out: Buffer, window: Window, signals: Window, n: int, round: int
) -> None:
    """Row `rank.index` of out = the sum of the rows of x; both [size, n]."""
    mine = rank.index * n
    write(rank, window, 0, rank.load(x, mine, n))
    allreduce(rank, window, signals, n, round)
    rank.store(out, rank.load(window, 0, n), mine)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(allreduce_ring, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    window = world.alloc([max(params.sizes)], torch.float32, name="window")
    signals = world.alloc(signal_shape(world.size), torch.int32, name="signals")
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
