"""Rung 6: push with put, push with put_signal, pull with get; each paired with notify and wait.

Three streams run between neighbours, with no barrier anywhere. In each, one cell says how many rows
the reader may take and another how many it has taken: the writer of row k waits for k readings
before it touches the memory again. A put is ordered before its notify by a fence; put_signal
needs none for its own data; a get_nbi has landed only after quiet.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, inputs, shared

# The cells of a rank: rows that it may take, and rows that were taken from it, by stream.
PUSHED, PUSHED_TAKEN, SIGNALLED, SIGNALLED_TAKEN, STAGED, STAGED_TAKEN = range(6)
CELLS = 6


def right_of(rank: Rank) -> int:
    """The reader of what this rank pushes with put and stages for get."""
    return (rank.index + 1) % rank.size


def left_of(rank: Rank) -> int:
    """The reader of what this rank pushes with put_signal."""
    return (rank.index - 1) % rank.size


def await_taken(rank: Rank, cells: Window, cell: int, round: int) -> None:
    """Return when the reader has taken the rows of all earlier rounds."""
    rank.wait(cells, cell, round)


def push(rank: Rank, inbox: Window, cells: Window, own: torch.Tensor) -> None:
    """Put one's row to the right, then say so; the fence keeps the notify behind the put."""
    rank.put(inbox, right_of(rank), own)
    rank.fence()
    rank.notify(cells, right_of(rank), PUSHED, 1)


def take_pushed(rank: Rank, inbox: Window, cells: Window, n: int, round: int) -> torch.Tensor:
    """The left neighbour's row."""
    rank.wait(cells, PUSHED, round + 1)
    row = rank.load(inbox, 0, n)
    rank.notify(cells, left_of(rank), PUSHED_TAKEN, 1)
    return row


def push_with_signal(rank: Rank, mailbox: Window, cells: Window, own: torch.Tensor) -> None:
    """Put one's row to the left with a signal that follows it."""
    rank.put_signal(mailbox, left_of(rank), own, 0, cells, SIGNALLED, 1)


def take_signalled(rank: Rank, mailbox: Window, cells: Window, n: int, round: int) -> torch.Tensor:
    """The right neighbour's row."""
    rank.wait(cells, SIGNALLED, round + 1)
    row = rank.load(mailbox, 0, n)
    rank.notify(cells, right_of(rank), SIGNALLED_TAKEN, 1)
    return row


def stage(rank: Rank, outbox: Window, cells: Window, own: torch.Tensor) -> None:
    """Leave one's row for the right neighbour to get. A store acts at once: no fence is needed."""
    rank.store(outbox, own)
    rank.notify(cells, right_of(rank), STAGED, 1)


def pull(rank: Rank, outbox: Window, cells: Window, n: int, round: int) -> torch.Tensor:
    """The left neighbour's row, fetched from its outbox."""
    rank.wait(cells, STAGED, round + 1)
    landing = rank.buffer(n, torch.float32)
    rank.get_nbi(landing, left_of(rank), outbox)
    rank.quiet()
    rank.notify(cells, left_of(rank), STAGED_TAKEN, 1)
    return rank.load(landing, 0, n)


def put_get(
    rank: Rank,
    x: Buffer,
    pushed: Buffer,
    signalled: Buffer,
    pulled: Buffer,
    inbox: Window,
    mailbox: Window,
    outbox: Window,
    cells: Window,
    n: int,
    round: int,
) -> None:
    """pushed and pulled: the left neighbour's row of x; signalled: the right's. All [size, n]."""
    mine = rank.index * n
    own = rank.load(x, mine, n)
    await_taken(rank, cells, PUSHED_TAKEN, round)
    push(rank, inbox, cells, own)
    await_taken(rank, cells, SIGNALLED_TAKEN, round)
    push_with_signal(rank, mailbox, cells, own)
    await_taken(rank, cells, STAGED_TAKEN, round)
    stage(rank, outbox, cells, own)
    rank.store(pushed, take_pushed(rank, inbox, cells, n, round), mine)
    rank.store(signalled, take_signalled(rank, mailbox, cells, n, round), mine)
    rank.store(pulled, pull(rank, outbox, cells, n, round), mine)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(put_get, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    longest = max(params.sizes)
    boxes = [
        world.alloc([longest], torch.float32, name=name) for name in ("inbox", "mailbox", "outbox")
    ]
    cells = world.alloc([CELLS], torch.int32, name="cells")
    observed = {}
    for round, n in enumerate(params.sizes):
        x = shared(inputs(world.size, n, round))
        pushed, signalled, pulled = (shared(torch.zeros(world.size, n)) for _ in range(3))
        world.prepare(x, pushed, signalled, pulled)
        dispatch_round(world, x, pushed, signalled, pulled, *boxes, cells, n, round)
        observed[f"pushed {round}"] = list(pushed)
        observed[f"signalled {round}"] = list(signalled)
        observed[f"pulled {round}"] = list(pulled)
    return observed


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"{label} {round}": list(inputs(size, n, round).roll(shift, 0))
        for round, n in enumerate(params.sizes)
        for label, shift in (("pushed", 1), ("signalled", -1), ("pulled", 1))
    }
