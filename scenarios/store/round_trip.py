"""Dump, load before commit, commit, look up, load, by one process a rank, each with blocks of its own.

The last ones are dropped instead of committed. At the end every rank loads what the next one committed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from harness import Scenario, World
from scenarios.store.clients import Client, new_disk, run_clients
from scenarios.store.history import History
from scenarios.store.judge import StoreChecker


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """blocks: of each rank, of which `dropped` are not committed. elements: int32 values of a block.

    cached: how many blocks the cache has room for; 0: no Cache stage.
    """

    blocks: Annotated[int, Meta(ge=1, le=5)] = 3
    dropped: Annotated[int, Meta(ge=0, le=2)] = 1
    elements: Annotated[int, Meta(ge=1, le=3000)] = 300
    workers: Annotated[int, Meta(ge=1, le=3)] = 2
    cached: Annotated[int, Meta(ge=0, le=4)] = 0
    durability: Literal["none", "flush", "fsync"] = "flush"
    direct: bool = False
    poll: bool = False


def config_of(params: Params) -> dict[str, Any]:
    """The store's configuration."""
    size = -(-4 * params.elements // 4096) * 4096
    return {
        "store_pipeline": "Cache|Posix" if params.cached else "Posix",
        "cache_bytes": max(params.cached, 1) * size, "workers": params.workers,
        "durability": params.durability, "io_direct": params.direct, "alignment": 512,
    }


def host(world: World, params: Params) -> dict[str, Any]:
    """One client a rank."""

    def program(client: Client) -> None:
        first = client.rank.index * params.blocks
        mine = list(range(first, first + params.blocks))
        client.lookup(mine)
        client.dump(mine, poll=params.poll)
        client.load(mine)
        kept = max(params.blocks - params.dropped, 0)
        client.commit(mine, [index < kept for index in range(params.blocks)])
        client.lookup(mine)
        client.load(mine[:kept], poll=params.poll)
        client.rank.sync()
        peer = (client.rank.index + 1) % client.rank.size * params.blocks
        client.load(range(peer, peer + kept))
        client.close()

    return run_clients(
        world, program, config_of(params), History(new_disk()), elements=params.elements,
        workers=params.workers,
    )


scenario = Scenario(
    name="store.round_trip", host=host, reference=None, params=Params, ranks=(1, 3),
    checkers=(StoreChecker(),), doc="Dump, commit, look up and load blocks, on the simulated disk.",
)
