"""An all-gather in one scratch window that holds data and flags, the flags in a fixed place.

Two buffers take turns, each with a row a rank, and so do two sets of flags. A flag is Set to the number
of its call and awaited for exactly that. Nobody waits for readers: who has the rows of call k knows that
all peers have begun call k, and so have read call k - 1, whose buffer and flags call k + 1 uses again.
A fast rank may thus be one call ahead, and may write into the other buffer while a slow one still
polls: the flags must lie where no message of another size ever lies.

Source: vLLM pull request 25892, an all-reduce for small messages. Not modelled: its reduction.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, NotifyOp, Rank, WaitCmp, Window, World
from systems.collectives import barrier
from systems.collectives.rounds import Rounds, Sizes, in_rounds

ITEM = 4  # bytes of an element and of a flag

reference = barrier.reference


class Messages(Rounds, frozen=True, forbid_unknown_fields=True):
    """As Rounds, with enough of them to use each buffer again."""

    sizes: Sizes = (4, 7, 2)


def flags_begin(size: int, n: int, longest: int) -> int:
    """The element of the scratch window at which the flags of a call with n elements a row begin."""
    return 2 * size * longest


def buffer_begins(size: int, longest: int, round: int) -> int:
    """The element at which the buffer of a round begins."""
    return round % 2 * size * longest


def views(
    rank: Rank, scratch: Window, n: int, longest: int, round: int
) -> tuple[Window, Window]:
    """The buffer (float32) and the flags (int32) of a round."""
    count = rank.size * longest
    rows = scratch.view([count], torch.float32, buffer_begins(rank.size, longest, round) * ITEM)
    begin = flags_begin(rank.size, n, longest) + round % 2 * rank.size
    return rows, scratch.view([rank.size], torch.int32, begin * ITEM)


def push(rank: Rank, rows: Window, flags: Window, own: torch.Tensor, round: int) -> None:
    """Write one's row into every buffer, and behind it one's flag."""
    at = rank.index * own.numel()
    rank.store(rows, own, at)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.put(rows, peer, own, at)
            rank.fence()
            rank.notify(flags, peer, rank.index, round + 1, op=NotifyOp.Set)


def await_rows(rank: Rank, flags: Window, round: int) -> None:
    """Return when the rows of all peers are here."""
    for peer in range(rank.size):
        if peer != rank.index:
            rank.wait(flags, peer, round + 1, cmp=WaitCmp.Eq)


def gather_rows(
    rank: Rank, x: Buffer, out: Buffer, scratch: Window, n: int, longest: int, round: int
) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    rows, flags = views(rank, scratch, n, longest, round)
    push(rank, rows, flags, rank.load(x, rank.index * n, n), round)
    await_rows(rank, flags, round)
    count = rank.size * n
    rank.store(out, rank.load(rows, 0, count), rank.index * count)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(gather_rows, *args, device=r)


def host(world: World, params: Messages) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    longest = max(params.sizes)
    scratch = world.alloc(2 * world.size * (longest + 1) * ITEM, name="scratch")
    return in_rounds(
        world, params.sizes, "board",
        lambda x, out, n, round: dispatch_round(world, x, out, scratch, n, longest, round),
        taken=world.size,
    )
