"""Requests admitted one by one, each only if every rank has room for it.

Before each request the ranks exchange how much room they have left and take the least, so all of them
stop at the same request, though they differ in room: how many collectives a rank calls must not follow
from what only that rank knows. Then they meet once more.

Source: SGLang issue 30760, a break on local memory inside a loop of all-reduces.
"""

from __future__ import annotations

from typing import Any

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.rounds import Rounds, shared


def room_of(index: int, n: int) -> int:
    """How many of n requests a rank has room for: ranks with an odd number for one more than others."""
    return n // 2 + index % 2


def least(rank: Rank, rooms: Window, own: int) -> int:
    """The least room of all ranks, each of which writes its own on every rank's list."""
    room = torch.tensor([own], dtype=torch.int32)
    rank.store(rooms, room, rank.index)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.remote_store(rooms, peer, room, rank.index)
    rank.barrier()
    found = int(rank.load(rooms, 0, rank.size).min())
    rank.sync()
    return found


def admits(own: int, agreed: int) -> bool:
    """Whether the next request is admitted. own: this rank's room. agreed: the least of all."""
    return agreed > 0


def admission(rank: Rank, out: Buffer, rooms: Window, n: int) -> None:
    """Element q of row `rank.index` of out = the least room when request q was admitted, or 0."""
    room = room_of(rank.index, n)
    for request in range(n):
        agreed = least(rank, rooms, room)
        if not admits(room, agreed):
            break
        rank.store(out, torch.tensor([float(agreed)]), rank.index * n + request)
        room -= 1
    rank.sync()


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(admission, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank; a round's size is its number of requests."""
    rooms = world.alloc([world.size], torch.int32, name="rooms")
    observed = {}
    for round, n in enumerate(params.sizes):
        out = shared(torch.zeros(world.size, n))
        world.prepare(out)
        dispatch_round(world, out, rooms, n)
        observed[f"admitted {round}"] = list(out)
    return observed


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        room = min(room_of(index, n) for index in range(size))
        row = torch.zeros(n)
        row[: min(room, n)] = torch.arange(room, 0, -1)[:n]
        expected[f"admitted {round}"] = [row] * size
    return expected
