"""Rows at offsets beyond 2 ** 31 of a window that is larger than any memory.

The window is virtual: each rank's rows have a region of tokens * width elements, of which only the
first row's beginning is backed by memory. Offsets are computed for the virtual window, in exact
integers, and then looked up in the memory behind it. So an offset that overflows goes where it would go,
and nothing large is allocated. The exchange is rung 13's: rows are put, credits given and given back.

Source: Triton-distributed issue 203, an all-to-all whose offset was a product of 32-bit factors.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from msgspec import Meta

from harness import Buffer, Rank, Window, World
from systems.collectives import barrier
from systems.collectives.allgather import ARRIVED, all_have_read, await_credits, peers, tell
from systems.collectives.rounds import Rounds, inputs, shared

Extents = Annotated[
    tuple[Annotated[int, Meta(ge=64, le=131072)], ...], Meta(min_length=1, max_length=3)
]


class Extended(Rounds, frozen=True, forbid_unknown_fields=True):
    """sizes: elements that a rank sends. tokens, widths: a region's extents by round, over and over."""

    tokens: Extents = (65536,)
    widths: Extents = (32768, 65536)


def reference(params: Extended, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return barrier.reference(params, size)


def offset(source: int, tokens: int, width: int) -> int:
    """The element of the virtual window at which the rows of `source` begin."""
    return source * tokens * width


def backing(gathered: Window, virtual: int, region: int) -> int:
    """The element of memory that stands behind an element of the virtual window."""
    return virtual // region * gathered.shape[1] + virtual % region


def place(gathered: Window, source: int, tokens: int, width: int) -> int:
    """The element of memory at which the row of `source` begins."""
    return backing(gathered, offset(source, tokens, width), tokens * width)


def far_offsets(
    rank: Rank, x: Buffer, out: Buffer, gathered: Window, cells: Window, n: int, tokens: int, width: int
) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    own = rank.load(x, rank.index * n, n)
    at = place(gathered, rank.index, tokens, width)
    rank.store(gathered, own, at)
    for peer in peers(rank):
        rank.put(gathered, peer, own, at)
    tell(rank, cells, ARRIVED)
    await_credits(rank, cells, ARRIVED)
    for source in range(rank.size):
        row = rank.load(gathered, source * gathered.shape[1], n)
        rank.store(out, row, (rank.index * rank.size + source) * n)
    all_have_read(rank, cells)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(far_offsets, *args, device=r)


def host(world: World, params: Extended) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    gathered = world.alloc([world.size, max(params.sizes)], torch.float32, name="gathered")
    cells = world.alloc([2, world.size], torch.int32, name="cells")
    observed = {}
    for round, n in enumerate(params.sizes):
        x = shared(inputs(world.size, n, round))
        out = shared(torch.zeros(world.size, world.size * n))
        world.prepare(x, out)
        tokens = params.tokens[round % len(params.tokens)]
        width = params.widths[round % len(params.widths)]
        dispatch_round(world, x, out, gathered, cells, n, tokens, width)
        observed[f"board {round}"] = list(out)
    return observed
