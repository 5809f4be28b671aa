"""Compute and copy as two lanes of a rank, ordered by events only: two streams of a device.

Lane 0 computes chunk after chunk into a staging buffer of two slots and records an event behind each;
lane 1 waits for the event, copies the slot to the right neighbour, and records an event of its own when
the slot may be used again. The staging buffer is freed on the compute lane when the last copy is done.
Nothing but the two events orders the lanes: a copy that does not wait, a slot that is filled too early,
a buffer that is freed while the other stream still uses it are the defects of this shape.

Source: the streams and events of CUDA, and the caching allocator's rule for a tensor that was allocated
on one stream and is used on another (torch.Tensor.record_stream).
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.allreduce_twophase import chunk
from systems.collectives.rounds import Rounds, in_rounds, inputs

CHUNKS = 3
SLOTS = 2
COMPUTED, COPIED, ARRIVED, TAKEN = range(4)
LANES = 2


def record(rank: Rank, cells: Window, event: int) -> None:
    """Record an event behind what this lane has done so far."""
    rank.quiet()
    rank.notify(cells, rank.index, event, 1)


def await_slot(rank: Rank, cells: Window, done: int) -> None:
    """Return when the slot of chunk number `done` (of all rounds) has been copied out."""
    rank.wait(cells, COPIED, max(done - SLOTS + 1, 0))


def await_chunk(rank: Rank, cells: Window, done: int) -> None:
    """Return when chunk number `done` has been computed."""
    rank.wait(cells, COMPUTED, done + 1)


def await_copies(rank: Rank, cells: Window, done: int) -> None:
    """Return when `done` chunks in all have been copied: nobody uses the staging buffer any more."""
    rank.wait(cells, COPIED, done)


def compute(
    rank: Rank, x: Buffer, stage: Window, cells: Window, n: int, round: int
) -> None:
    """The compute lane: stage twice the rank's row, chunk by chunk, then free the staging buffer."""
    room = stage.numel // SLOTS
    for index in range(CHUNKS):
        done = round * CHUNKS + index
        start, count = chunk(n, CHUNKS, index)
        await_slot(rank, cells, done)
        if count:
            made = 2 * rank.load(x, rank.index * n + start, count)
            rank.store(stage, made, index % SLOTS * room)
        record(rank, cells, COMPUTED)
    await_copies(rank, cells, (round + 1) * CHUNKS)
    stage.free()


def copy(rank: Rank, stage: Window, landing: Window, cells: Window, n: int, round: int) -> None:
    """The copy lane: send each chunk to the right neighbour as soon as it is computed."""
    right = (rank.index + 1) % rank.size
    room = stage.numel // SLOTS
    rank.wait(cells, TAKEN, round)
    for index in range(CHUNKS):
        start, count = chunk(n, CHUNKS, index)
        await_chunk(rank, cells, round * CHUNKS + index)
        if count:
            slot = stage.view([count], torch.float32, index % SLOTS * room * stage.itemsize)
            rank.put_nbi(landing, right, slot, start)
        record(rank, cells, COPIED)
    rank.notify(cells, right, ARRIVED, 1)


def streams(
    rank: Rank, x: Buffer, out: Buffer, stage: Window, landing: Window, cells: Window, n: int,
    round: int,
) -> None:
    """Row `rank.index` of out = twice the left neighbour's row of x; both [size, n]. One lane's part."""
    if rank.lane == 0:
        compute(rank, x, stage, cells, n, round)
        return
    copy(rank, stage, landing, cells, n, round)
    rank.wait(cells, ARRIVED, round + 1)
    rank.store(out, rank.load(landing, 0, n), rank.index * n)
    rank.notify(cells, (rank.index - 1) % rank.size, TAKEN, 1)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank, with two lanes."""
    for r in range(len(world.device_ids)):
        world.dispatch(streams, *args, device=r, lanes=LANES)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank; every round has a staging buffer of its own."""
    landing = world.alloc([max(params.sizes)], torch.float32, name="landing")
    cells = world.alloc([4], torch.int32, name="events")

    def one_round(x: torch.Tensor, out: torch.Tensor, n: int, round: int) -> None:
        room = max(chunk(n, CHUNKS, index)[1] for index in range(CHUNKS))
        stage = world.alloc([SLOTS * room], torch.float32, name=f"stage {round}")
        dispatch_round(world, x, out, stage, landing, cells, n, round)

    return in_rounds(world, params.sizes, "row", one_round)


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"row {round}": list(2 * inputs(size, n, round).roll(1, 0))
        for round, n in enumerate(params.sizes)
    }
