"""Prompts with a common beginning reuse each other's blocks, as an inference engine's prefix cache does.

A prompt's words are its tokens; every full block of tokens gets an id chained to the one before it:
md5(previous id, tokens). A request asks for the longest prefix that is there, loads it, and dumps and
commits the rest. In the second pass every process serves the next one's prompts: all is there by then.
"""

from __future__ import annotations

import hashlib
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

Text = Annotated[str, Meta(extra={"faker": "paragraph"})]
Question = Annotated[str, Meta(extra={"faker": "sentence"})]
BLOCKS_MAX = 6  # of a prompt


class Params(StoreParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """system: what every prompt begins with. questions: one request each. tokens: of a block."""

    system: Text = "You are a patient assistant and answer in one short sentence."
    questions: Annotated[tuple[Question, ...], Meta(min_length=1, max_length=3)] = (
        "Why does rank three hang?", "Why is the cache cold after a restart?",
    )
    tokens: Annotated[int, Meta(ge=1, le=8)] = 4


def chain(prompt: str, tokens: int) -> list[bytes]:
    """The ids of a prompt's full blocks, 16 bytes each."""
    words = prompt.split()
    ids: list[bytes] = []
    previous = b""
    for at in range(0, len(words) - tokens + 1, tokens):
        previous = hashlib.md5(previous + "\0".join(words[at : at + tokens]).encode()).digest()
        ids.append(previous)
    return ids[:BLOCKS_MAX]


def host(world: World, params: Params) -> dict[str, Any]:
    """One process a rank; the questions are dealt out."""
    history = History(new_disk(), tolerated=frozenset((NOT_FOUND,)))

    def serve(client: Client, question: str) -> None:
        ids = chain(f"{params.system} {question}", params.tokens)
        blocks = [history.number_of(one) for one in ids]
        last = client.lookup_on_prefix(blocks)
        client.load(blocks[: last + 1], poll=params.poll)
        missing = list(dict.fromkeys(blocks[last + 1 :]))
        client.dump(missing)
        client.commit(missing)

    def program(client: Client) -> None:
        rank = client.rank
        for turn in (0, 1):
            for question in params.questions[(rank.index + turn) % rank.size :: rank.size]:
                serve(client, question)
            rank.sync()
        client.leave()

    return run_clients(
        world, program, params.config(), history, elements=params.elements, workers=params.workers
    )


scenario = Scenario(
    name="store.prefix_reuse", host=host, reference=None, params=Params, ranks=(1, 3),
    checkers=(StoreChecker(), LINEARIZABLE), bug_faults=MENU,
    doc="Prompts with a common beginning reuse each other's blocks.",
)
