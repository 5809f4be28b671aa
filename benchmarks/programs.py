"""Programs that several benchmarks measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness import Rank, World

CHUNK = 4


def barrier(rank: Rank, data: Any, cells: Any, rounds: int) -> None:
    """put-fence-notify-wait-load to and from every peer: 21 operations a rank at P=4, 84 events."""
    source = rank.buffer(CHUNK, torch.float32)
    for round in range(1, rounds + 1):
        for peer in range(rank.size):
            if peer != rank.index:
                rank.put(data, peer, source, rank.index * CHUNK)
                rank.fence()
                rank.notify(cells, peer, rank.index, 1)
        for peer in range(rank.size):
            if peer != rank.index:
                rank.wait(cells, peer, round)
                rank.load(data, peer * CHUNK, CHUNK)


def barrier_host(rounds: int = 1) -> Callable[[World], None]:
    """The host program of `barrier`."""

    def host(world: World) -> None:
        data = world.alloc([world.size * CHUNK], torch.float32, name="data")
        cells = world.alloc([world.size], torch.int32, name="cells")
        for index in range(world.size):
            world.dispatch(barrier, data, cells, rounds, device=index)

    return host


def allreduce(rank: Rank, data: Any, cells: Any, mine: Any, count: int, rounds: int) -> torch.Tensor:
    """Mesh all-reduce of `count` float32, `rounds` times: put to every peer, notify, wait, load, add.

    Two data areas take turns: a rank that begins round k + 2 knows that all have read round k.
    """
    total = torch.empty(0)
    for round in range(rounds):
        base = (round % 2) * rank.size
        for peer in range(rank.size):
            rank.put(data, peer, mine, (base + rank.index) * count)
            rank.fence()
            rank.notify(cells, peer, rank.index, 1)
        rank.wait(cells, 0, round + 1)
        total = rank.load(data, base * count, count)
        for peer in range(1, rank.size):
            rank.wait(cells, peer, round + 1)
            total += rank.load(data, (base + peer) * count, count)
    return total


def allreduce_host(rounds: int, count: int = 64) -> Callable[[World], None]:
    """The host program of `allreduce`."""
    source = torch.ones(count).share_memory_()

    def host(world: World) -> None:
        data = world.alloc([2 * world.size * count], torch.float32, name="data")
        cells = world.alloc([world.size], torch.int32, name="cells")
        world.prepare(source)
        for index in range(world.size):
            world.dispatch(allreduce, data, cells, source, count, rounds, device=index)

    return host
