"""One client dumps and commits, all others look on: lookups of the same blocks, again and again.

What no single answer shows, a sequence of them does: a block that was seen stays seen.
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
from systems.store.errors import NOT_FOUND

LOOKS_MAX = 30


class Params(StoreParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """blocks: that the first rank's first client commits. watchers: clients a rank besides the first.
    looks: of each of them once it has seen a block; it waits for that a while."""

    blocks: Annotated[int, Meta(ge=1, le=3)] = 1
    watchers: Annotated[int, Meta(ge=1, le=2)] = 2
    looks: Annotated[int, Meta(ge=2, le=8)] = 4


def host(world: World, params: Params) -> dict[str, Any]:
    """Lane 0 of rank 0 commits; the first client of every other rank looks on as well."""
    everything = list(range(params.blocks))

    def program(client: Client) -> None:
        if client.rank.index == client.rank.lane == 0:
            for block in everything:
                if client.dump([block], poll=params.poll) == [0]:
                    client.commit([block])
        else:
            left, seen = params.looks, False
            for _ in range(LOOKS_MAX):
                seen |= any(client.lookup(everything))
                left -= seen
                if not left:
                    break
            client.load(everything)
        client.leave()

    history = History(new_disk(), tolerated=frozenset((NOT_FOUND,)))
    return run_clients(
        world, program, params.config(), history, elements=params.elements, clients=1 + params.watchers,
        workers=params.workers,
    )


scenario = Scenario(
    name="store.watching", host=host, reference=None, params=Params, ranks=(1, 3),
    checkers=(StoreChecker(), LINEARIZABLE), bug_faults=MENU,
    doc="Clients look on while another one commits.",
)
