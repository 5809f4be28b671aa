"""A domain that a call allocates for itself: rows and a pad for signals, released at the end.

The windows are symmetric and allocated by the ranks. Memory holds anything at first, so each rank
zeroes its pad and all meet before any of them signals: a pad must be zero before a peer can reach it.
The pad has one cell, which counts the rows that have come. A rank releases its part when every peer's
row is here, as nothing more is written there.

Source: PyTorch pull request 196546 (a pad zeroed late), simpler pull request 1500 (a window wiped after
its handle was announced).
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives import barrier
from systems.collectives.rounds import Rounds, in_rounds

reference = barrier.reference


def clear(rank: Rank, pad: Window) -> None:
    """Zero one's own pad."""
    rank.store(pad, 0)


def announce(rank: Rank, pad: Window) -> None:
    """Return when the pads of all ranks may be signalled."""
    clear(rank, pad)
    rank.sync()


def push(rank: Rank, rows: Window, pad: Window, own: torch.Tensor) -> None:
    """Write one's row into every rank's part, each with a signal that follows it."""
    at = rank.index * own.numel()
    rank.store(rows, own, at)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.put_signal(rows, peer, own, at, pad, 0, 1)


def collect(rank: Rank, rows: Window, pad: Window) -> torch.Tensor:
    """The rows of all ranks, when all are here."""
    rank.wait(pad, 0, rank.size - 1)
    return rank.load(rows, 0, rows.numel)


def gather_in_domain(rank: Rank, x: Buffer, out: Buffer, n: int) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    rows = rank.window("rows", [rank.size, n], torch.float32)
    pad = rank.window("pad", 1, torch.int32, init="poison")
    announce(rank, pad)
    push(rank, rows, pad, rank.load(x, rank.index * n, n))
    rank.store(out, collect(rank, rows, pad), rank.index * rank.size * n)
    rows.free()
    pad.free()


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(gather_in_domain, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    return in_rounds(
        world, params.sizes, "board",
        lambda x, out, n, round: dispatch_round(world, x, out, n),
        taken=world.size,
    )
