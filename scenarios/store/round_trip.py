"""Dump, load before commit, commit, look up, load, by one process a rank, each with blocks of its own.

The last ones are dropped instead of committed, and nobody can load them then. A first dump may be
cancelled; what it did not do is dumped again. At the end every rank opens its store anew, with an empty
cache, and loads what the next one committed.
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
from systems.store.errors import CANCELLED


class Params(StoreParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """blocks: of each rank, of which the last `dropped` are not committed.

    cancelled: whether a dump of all of them is cancelled first.
    """

    blocks: Annotated[int, Meta(ge=1, le=5)] = 4
    dropped: Annotated[int, Meta(ge=0, le=2)] = 1
    cancelled: bool = True
    cached: Annotated[int, Meta(ge=0, le=4)] = 2
    direct: bool = True


def host(world: World, params: Params) -> dict[str, Any]:
    """One client a rank."""

    def program(client: Client) -> None:
        first = client.rank.index * params.blocks
        mine = list(range(first, first + params.blocks))
        client.lookup(mine)
        left = mine
        if params.cancelled:
            codes = client.dump(mine, cancel=True)
            left = [block for block, code in zip(mine, codes, strict=False) if code == CANCELLED]
        client.dump(left, poll=params.poll)
        client.lookup(mine)
        client.load(mine)
        kept = max(params.blocks - params.dropped, 0)
        client.commit(mine, [index < kept for index in range(params.blocks)])
        client.lookup(mine)
        client.load(mine, poll=params.poll)
        client.close()
        client.open(params.config())
        client.rank.sync()
        peer = (client.rank.index + 1) % client.rank.size * params.blocks
        client.load(range(peer, peer + kept))
        client.leave()

    return run_clients(
        world, program, params.config(), History(new_disk()), elements=params.elements,
        workers=params.workers,
    )


scenario = Scenario(
    name="store.round_trip", host=host, reference=None, params=Params, ranks=(1, 3),
    checkers=(StoreChecker(), LINEARIZABLE), bug_faults=MENU,
    doc="Dump, commit, look up and load blocks, on the simulated disk.",
)
