"""A process that ends, in order or not, and what the next one finds.

Each rank dumps blocks, commits some, and leaves: closed, or abandoned as a killed process would leave
its store. Then the disk may lose power: only what is durable stays. A further process a rank opens the
store, looks up and loads everything, and dumps again what is not there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from harness import Scenario, World
from scenarios.store.block_model import LINEARIZABLE
from scenarios.store.clients import Client, new_disk, run_clients
from scenarios.store.history import History
from scenarios.store.judge import StoreChecker
from scenarios.store.menu import MENU
from scenarios.store.params import StoreParams


class Params(StoreParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """blocks: of each rank; the first `committed` are. closed: whether the store is closed first.

    power_cut: whether the disk loses what is not durable before the next process begins.
    """

    blocks: Annotated[int, Meta(ge=1, le=4)] = 3
    committed: Annotated[int, Meta(ge=0, le=4)] = 2
    closed: bool = True
    power_cut: bool = True
    durability: Literal["none", "flush", "fsync"] = "fsync"


def host(world: World, params: Params) -> dict[str, Any]:
    """Two store objects a rank, one after the other."""

    def program(client: Client) -> None:
        rank = client.rank
        blocks = range(rank.index * params.blocks, (rank.index + 1) * params.blocks)
        kept = blocks[: params.committed]
        client.dump(blocks, poll=params.poll)
        client.commit(kept)
        if params.closed:
            client.close()
        rank.sync()
        if params.power_cut and rank.index == 0:
            client.cut_power(durable=params.durability == "fsync")
        rank.sync()
        client.open(params.config(residue_seconds=1))
        everything = range(rank.size * params.blocks)
        hits = client.lookup(everything)
        client.load([block for block, hit in zip(everything, hits, strict=False) if hit])
        missing = [block for block in blocks if hits and not hits[block]]
        client.dump(missing)
        client.commit(missing)
        client.load(blocks)
        client.leave()

    return run_clients(
        world, program, params.config(), History(new_disk()), elements=params.elements,
        workers=params.workers,
    )


scenario = Scenario(
    name="store.restart", host=host, reference=None, params=Params, ranks=(1, 3),
    checkers=(StoreChecker(), LINEARIZABLE), bug_faults=MENU,
    doc="What a process finds where another one ended.",
)
