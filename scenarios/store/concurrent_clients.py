"""Several processes, each with several client threads on one store object, share blocks by content.

Every client looks up all blocks, dumps and commits those that miss, and loads what it then finds. Two
that dump the same block write the same data; in one process the later dump replaces the earlier one,
which is told so. Then the clients of a process load all blocks at the same time, and the first dumps them
once more while the others load.
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
from systems.store.errors import CANCELLED, RETRY


class Params(StoreParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """blocks: that all clients want. clients: threads a process. rounds: of each client."""

    blocks: Annotated[int, Meta(ge=1, le=4)] = 3
    clients: Annotated[int, Meta(ge=1, le=3)] = 2
    rounds: Annotated[int, Meta(ge=1, le=2)] = 1
    cached: Annotated[int, Meta(ge=0, le=4)] = 1


def host(world: World, params: Params) -> dict[str, Any]:
    """All clients want the same blocks: each begins with another one, at the end with the same."""

    def program(client: Client) -> None:
        who = client.rank.index * params.clients + client.rank.lane
        wanted = [(who + index) % params.blocks for index in range(params.blocks)]
        for _ in range(params.rounds):
            hits = client.lookup(wanted)
            missing = [block for block, hit in zip(wanted, hits, strict=True) if not hit] if hits else []
            codes = client.dump(missing, poll=params.poll)
            good = [block for block, code in zip(missing, codes, strict=False) if code == 0]
            client.commit(good)
            client.load([block for block, hit in zip(wanted, client.lookup(wanted), strict=False) if hit])
        client.meet()
        for block in range(params.blocks):
            client.load([block])
        again = range(params.blocks)
        if client.rank.lane == 0:
            codes = client.dump(again)
            client.commit([block for block, code in zip(again, codes, strict=False) if code == 0])
        else:
            client.load(again)
        client.leave()

    history = History(new_disk(), tolerated=frozenset((CANCELLED, RETRY)))
    return run_clients(
        world, program, params.config(), history, elements=params.elements, clients=params.clients,
        workers=params.workers,
    )


scenario = Scenario(
    name="store.concurrent_clients", host=host, reference=None, params=Params, ranks=(1, 4),
    checkers=(StoreChecker(), LINEARIZABLE), bug_faults=MENU,
    doc="Client threads of several processes share blocks by content.",
)
