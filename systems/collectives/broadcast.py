"""Rung 12: a broadcast from any root, in place.

Every rank stages its own row in its part of the window; all but the root then replace it by the root's
row, which they get from the root's part. The root announces its row on a cell that stands for it, and
each reader gives a credit back on a cell that stands for the reader. The root returns only with all
credits, so its part may be overwritten, by its next row or by what it gets from another root.

A cell has one writer, counts the calls with that root and is never reset. Not modelled: trees, chunks.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from msgspec import Meta

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, inputs, shared

ANNOUNCED, TAKEN = range(2)


class Broadcasts(Rounds, frozen=True, forbid_unknown_fields=True):
    """sizes: elements of each round. roots: the root of each round modulo size, over and over."""

    roots: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=7)], ...], Meta(min_length=1, max_length=3)
    ] = (1,)


def root_of(params: Broadcasts, round: int, size: int) -> int:
    """The root of a round."""
    return params.roots[round % len(params.roots)] % size


def epoch_of(params: Broadcasts, round: int, size: int) -> int:
    """In how many earlier rounds the root was the same."""
    roots = [root_of(params, earlier, size) for earlier in range(round + 1)]
    return roots.count(roots[-1]) - 1


def announce(rank: Rank, signals: Window) -> None:
    """Tell every reader that the root's row is staged. A store acts at once: no fence is needed."""
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(signals, peer, ANNOUNCED * rank.size + rank.index, 1)


def await_readers(rank: Rank, signals: Window, epoch: int) -> None:
    """Return when every reader has taken the root's row."""
    for peer in range(rank.size):
        if peer != rank.index:
            rank.wait(signals, TAKEN * rank.size + peer, epoch + 1)


def await_root(rank: Rank, signals: Window, root: int, epoch: int) -> None:
    """Return when the root's row is staged."""
    rank.wait(signals, ANNOUNCED * rank.size + root, epoch + 1)


def fetch(rank: Rank, window: Window, root: int, n: int) -> None:
    """Replace one's own row by the root's."""
    rank.get(window.view([n], window.dtype), root, window)


def give_back(rank: Rank, signals: Window, root: int) -> None:
    """Tell the root that this rank has taken its row; a get has landed when it returns."""
    rank.notify(signals, root, TAKEN * rank.size + rank.index, 1)


def spread(rank: Rank, window: Window, signals: Window, n: int, root: int, epoch: int) -> None:
    """Replace the first n elements of every part of the window by the root's."""
    if rank.index == root:
        announce(rank, signals)
        await_readers(rank, signals, epoch)
    else:
        await_root(rank, signals, root, epoch)
        fetch(rank, window, root, n)
        give_back(rank, signals, root)


def broadcast(
    rank: Rank, x: Buffer, out: Buffer, window: Window, signals: Window, n: int, root: int, epoch: int
) -> None:
    """Row `rank.index` of out = row `root` of x; both [size, n]."""
    mine = rank.index * n
    rank.store(window, rank.load(x, mine, n))
    spread(rank, window, signals, n, root, epoch)
    rank.store(out, rank.load(window, 0, n), mine)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(broadcast, *args, device=r)


def host(world: World, params: Broadcasts) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    window = world.alloc([max(params.sizes)], torch.float32, name="window")
    signals = world.alloc([2, world.size], torch.int32, name="signals")
    observed = {}
    for round, n in enumerate(params.sizes):
        x = shared(inputs(world.size, n, round))
        out = shared(torch.zeros(world.size, n))
        world.prepare(x, out)
        root, epoch = root_of(params, round, world.size), epoch_of(params, round, world.size)
        dispatch_round(world, x, out, window, signals, n, root, epoch)
        observed[f"row {round}"] = list(out)
    return observed


def reference(params: Broadcasts, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"row {round}": [inputs(size, n, round)[root_of(params, round, size)]] * size
        for round, n in enumerate(params.sizes)
    }
