"""Tensor-parallel ranks keep a shard each of every block; a block is there when all its shards are.

Every rank looks up, and loads the next one's shards, while the others may still be at work; then all
meet, look up again and load their own shards, and the next rank's.
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
from scenarios.store.params import StoreParams


class Params(StoreParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """blocks: each with as many shards as there are ranks."""

    blocks: Annotated[int, Meta(ge=1, le=3)] = 2
    cached: Annotated[int, Meta(ge=0, le=4)] = 2


def host(world: World, params: Params) -> dict[str, Any]:
    """One client a rank; the shard is the rank."""

    def program(client: Client) -> None:
        blocks = range(params.blocks)
        shard = client.rank.index
        client.dump(blocks, shard, poll=params.poll)
        client.lookup(blocks)
        client.commit(blocks)
        client.lookup(blocks)
        client.load(blocks, (shard + 1) % client.rank.size)
        client.rank.sync()
        client.lookup(blocks)
        client.load(blocks, shard)
        client.load(blocks, (shard + 1) % client.rank.size)
        client.leave()

    return run_clients(
        world, program, params.config(shards=world.size), History(new_disk(), shards=world.size),
        elements=params.elements, workers=params.workers,
    )


scenario = Scenario(
    name="store.shards", host=host, reference=None, params=Params, ranks=(1, 4),
    checkers=(StoreChecker(), LINEARIZABLE), bug_faults=MENU,
    doc="Each rank keeps its shard; a block is whole when all are there.",
)
