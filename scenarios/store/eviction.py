"""A store whose capacity is smaller than what its clients keep committing: old blocks are collected.

While each process commits block after block, other client threads look up, prefetch and load. A block
that was collected misses; what is loaded is right. The newest block is there, and at the end no more is
kept than the capacity and what must be spared.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from harness import Scenario, World
from scenarios.store.block_model import LINEARIZABLE
from scenarios.store.clients import Client, new_disk, run_clients
from scenarios.store.history import History
from scenarios.store.judge import StoreChecker
from scenarios.store.menu import MENU
from scenarios.store.params import PAGE, StoreParams
from systems.store.errors import NOT_FOUND


class Params(StoreParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """blocks: committed by each rank. room: blocks that the store's capacity is good for."""

    blocks: Annotated[int, Meta(ge=1, le=6)] = 3
    room: Annotated[int, Meta(ge=1, le=4)] = 2
    cached: Annotated[int, Meta(ge=0, le=4)] = 2
    readers: Annotated[int, Meta(ge=1, le=2)] = 2


def host(world: World, params: Params) -> dict[str, Any]:
    """Lane 0 of a rank commits, the others load."""
    everything = list(range(world.size * params.blocks))

    def program(client: Client) -> None:
        if client.rank.lane == 0:
            for index in range(params.blocks):
                mine = [client.rank.index * params.blocks + index]
                if client.dump(mine, poll=params.poll) == [0]:
                    client.commit(mine)
                client.load(mine)
        else:
            hits = client.lookup(everything)
            there = [block for block, hit in zip(everything, hits, strict=False) if hit]
            client.prefetch(there)
            client.load(there)
            client.load(everything)
        client.leave()

    size = 4 * params.elements + PAGE
    capacity = params.room * size
    # A process counts what it commits itself; it spares what it commits just now and what it reads.
    most = world.size * (capacity + (1 + params.workers) * size)
    history = History(new_disk(), evicts=True, tolerated=frozenset((NOT_FOUND,)), most=most)
    return run_clients(
        world, program, params.config(capacity_bytes=capacity), history, elements=params.elements,
        clients=1 + params.readers, workers=params.workers,
    )


scenario = Scenario(
    name="store.eviction", host=host, reference=None, params=Params, ranks=(1, 3),
    checkers=(StoreChecker(), LINEARIZABLE), bug_faults=MENU,
    doc="Blocks are loaded while others push them out.",
)
