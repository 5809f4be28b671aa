"""Rung 15, ragged: all-to-all-v, blocks of any length, also of none.

How many elements rank s sends to rank t follows from s, t and the round's n (0 to n of them), and
only s is taken to know it. The blocks for ranks 0, 1, ... stand one behind the other in its row, and
so do the blocks received in the result. In an inbox every source has room for the longest block of
all rounds: where a block goes depends on nobody else's count, and in no round on another source's place.

A target learns the count with the block: the rows are put, behind a fence the count is Set on a
cell of its own (as in PyPTO), behind another the arrival is counted up. An empty block is announced
as well, else its target waits for ever. Blocks and count are written only when the target has taken
the last ones. Cells are a cell a peer and source.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch

from harness import Buffer, NotifyOp, Rank, Window, World
from systems.collectives.rounds import Rounds, in_rounds, inputs

ARRIVED, TAKEN = range(2)  # rows of cells, a cell a peer


def count(source: int, target: int, n: int) -> int:
    """How many elements, 0 to n, `source` sends to `target`.

    With the default sizes two ranks send each other different numbers, one of them none.
    """
    return (17 * source + 23 * target + n) % (n + 1)


def send_counts(rank: Rank, n: int) -> list[int]:
    """How many elements this rank sends to each rank."""
    return [count(rank.index, target, n) for target in range(rank.size)]


def offsets(counts: list[int]) -> list[int]:
    """Where in a row each of its blocks begins."""
    return list(accumulate(counts, initial=0))[:-1]


def place(inbox: Window, source: int, n: int) -> int:
    """The element of an inbox at which there is room for the block of `source`."""
    return source * inbox.shape[1]


def await_taken(rank: Rank, cells: Window, round: int) -> None:
    """Return when every peer has taken this rank's block and count of all earlier rounds."""
    for peer in range(rank.size):
        rank.wait(cells, TAKEN * rank.size + peer, round)


def send_blocks(rank: Rank, inbox: Window, own: torch.Tensor, counts: list[int], n: int) -> None:
    """Put each target's block, if it has any elements, into this rank's place of its inbox."""
    for target, at in enumerate(offsets(counts)):
        if counts[target]:
            block = own[at : at + counts[target]]
            rank.put(inbox, target, block, place(inbox, rank.index, n))


def keep_order(rank: Rank) -> None:
    """What follows is delivered to each target behind what came before."""
    rank.fence()


def announce(rank: Rank, received: Window, cells: Window, counts: list[int]) -> None:
    """Tell every rank how long its block is, then that it is there."""
    keep_order(rank)
    for target, elements in enumerate(counts):
        rank.notify(received, target, rank.index, elements, op=NotifyOp.Set)
    keep_order(rank)
    for target in range(rank.size):
        rank.notify(cells, target, ARRIVED * rank.size + rank.index, 1)


def await_count(rank: Rank, received: Window, cells: Window, source: int, round: int) -> int:
    """How many elements `source` has sent, as soon as all of them are here."""
    rank.wait(cells, ARRIVED * rank.size + source, round + 1)
    return int(rank.load(received, source, 1))


def tell_taken(rank: Rank, cells: Window, source: int) -> None:
    """Say that the place of `source` is free again."""
    rank.notify(cells, source, TAKEN * rank.size + rank.index, 1)


def alltoallv(
    rank: Rank,
    x: Buffer,
    out: Buffer,
    inbox: Window,
    received: Window,
    cells: Window,
    n: int,
    round: int,
) -> None:
    """Row `rank.index` of out = the blocks for this rank, packed. x, out: [size, size * n]."""
    mine = rank.index * rank.size * n
    counts = send_counts(rank, n)
    own = rank.load(x, mine, rank.size * n)
    await_taken(rank, cells, round)
    send_blocks(rank, inbox, own, counts, n)
    announce(rank, received, cells, counts)
    end = mine
    for source in range(rank.size):
        elements = await_count(rank, received, cells, source, round)
        if elements:
            rank.store(out, rank.load(inbox, place(inbox, source, n), elements), end)
        tell_taken(rank, cells, source)
        end += elements


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(alltoallv, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank, zeros behind the last block."""
    inbox = world.alloc([world.size, max(params.sizes)], torch.float32, name="inbox")
    received = world.alloc([world.size], torch.int32, name="received")
    cells = world.alloc([2, world.size], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "blocks",
        lambda x, out, n, round: dispatch_round(world, x, out, inbox, received, cells, n, round),
        given=world.size, taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        sent = []
        for source, row in enumerate(inputs(size, size * n, round)):
            counts = [count(source, target, n) for target in range(size)]
            sent.append(row[: sum(counts)].split(counts))
        rows = torch.zeros(size, size * n)
        for target, row in enumerate(rows):
            packed = torch.cat([blocks[target] for blocks in sent])
            row[: packed.numel()] = packed
        expected[f"blocks {round}"] = list(rows)
    return expected
