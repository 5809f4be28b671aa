"""Rung 5: a ring shift, once by remote_store and once by remote_load.

Each rank's row goes to its right neighbour: pushed into the neighbour's inbox, and left in one's
own outbox for the neighbour to fetch. A remote_store is delivered later, so the ranks meet only
after quiet; the barrier at the end keeps the next round away from boxes that are still read.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, inputs, shared


def right_of(rank: Rank) -> int:
    """The neighbour to which this rank's row goes."""
    return (rank.index + 1) % rank.size


def left_of(rank: Rank) -> int:
    """The neighbour whose row comes here."""
    return (rank.index - 1) % rank.size


def send(rank: Rank, inbox: Window, outbox: Window, own: torch.Tensor) -> None:
    """Offer one's row in both ways."""
    rank.store(outbox, own)
    rank.remote_store(inbox, right_of(rank), own)


def all_have_sent(rank: Rank) -> None:
    """Return when every rank's row is in both boxes; sync alone completes nothing."""
    rank.quiet()
    rank.sync()


def exchange(
    rank: Rank, inbox: Window, outbox: Window, own: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The left neighbour's row as it was pushed here, and as it is fetched from there."""
    send(rank, inbox, outbox, own)
    all_have_sent(rank)
    count = own.numel()
    return rank.load(inbox, 0, count), rank.remote_load(outbox, left_of(rank), 0, count)


def all_have_read(rank: Rank) -> None:
    """Return when both boxes may be overwritten."""
    rank.barrier()


def remote_load_store(
    rank: Rank, x: Buffer, stored: Buffer, loaded: Buffer, inbox: Window, outbox: Window, n: int
) -> None:
    """Row `rank.index` of stored and of loaded = the left neighbour's row of x; all [size, n]."""
    mine = rank.index * n
    pushed, fetched = exchange(rank, inbox, outbox, rank.load(x, mine, n))
    rank.store(stored, pushed, mine)
    rank.store(loaded, fetched, mine)
    all_have_read(rank)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(remote_load_store, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    inbox = world.alloc([max(params.sizes)], torch.float32, name="inbox")
    outbox = world.alloc([max(params.sizes)], torch.float32, name="outbox")
    observed = {}
    for round, n in enumerate(params.sizes):
        x = shared(inputs(world.size, n, round))
        stored = shared(torch.zeros(world.size, n))
        loaded = shared(torch.zeros(world.size, n))
        world.prepare(x, stored, loaded)
        dispatch_round(world, x, stored, loaded, inbox, outbox, n)
        observed[f"stored {round}"] = list(stored)
        observed[f"loaded {round}"] = list(loaded)
    return observed


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    return {
        f"{label} {round}": list(inputs(size, n, round).roll(1, 0))
        for round, n in enumerate(params.sizes)
        for label in ("stored", "loaded")
    }
