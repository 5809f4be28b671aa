"""What one block of a store means when its clients' calls come one after another, for `linearizable`.

A block is absent, or some shards of it are committed; beside that every store object has shards of its
own that it has dumped and not committed. A hit needs all shards; a load needs them too, or the shard as
the store's own. A dump or commit that failed, or has no answer, may have done anything that it can do.
Where blocks are evicted a miss says that the block is gone from then on: one that hits again without a
commit has no order, while a load may still have it from a cache. A power cut may take any block (whether
it was allowed to is the checker `store`'s question).

A prefix lookup is one lookup an id, with the same times: whether its answers could have been given at one
moment is not judged. Not judged at all: runs in which the disk changed something in silence or the
client itself was wrong; lookups and loads that raised; loads whose bytes are wrong (`store` has them).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from harness import ILLEGAL, NEVER, Linearizable, Op, Run
from scenarios.store.history import Call, History
from scenarios.store.told_good import SILENT
from systems.store.errors import BAD_PARAMETER, NOT_FOUND, OK, TIMEOUT

Store = tuple[int, int]  # rank, and which of its stores
ASKING = ("hit", "miss", "loaded", "unloaded")


class Block(NamedTuple):
    """committed: shards that everybody may see. own: shards that one store has dumped. evicted: shards
    that were committed before the block was evicted, and that a cache may have."""

    committed: frozenset[int] = frozenset()
    own: frozenset[tuple[Store, int]] = frozenset()
    evicted: frozenset[int] = frozenset()

    def shards(self, store: Store) -> frozenset[int]:
        """Those that the store could commit."""
        return frozenset(shard for one, shard in self.own if one == store)


class Asked(NamedTuple):
    """Who asked for which shard, in a world where a block has so many and may be evicted."""

    store: Store
    shard: int
    shards: int
    evicts: bool


States = frozenset[Block]  # what may be the case: failed calls leave more than one possibility


class BlockModel:
    """See the module. kinds: hit, miss, loaded, unloaded, dump, commit, drop, cut; result True, False for
    a failure, None for no answer."""

    def initial(self) -> States:
        """Absent."""
        return frozenset((Block(),))

    def step(self, state: States, op: Op) -> Any:
        """The possibilities that the operation leaves, or ILLEGAL where there are none."""
        kind, asked, result = op.kind, op.value, op.result
        left = frozenset(after for block in state for after in _after(block, kind, asked, result))
        return left or ILLEGAL

    def asks(self, op: Op) -> bool:
        """Answers about the block. A miss where blocks are evicted is more: it is gone from then on."""
        return op.kind in ASKING and not (op.value.evicts and op.kind in ("miss", "unloaded"))

    def register(self, op: Op) -> None:
        """A block is no register: what is dumped, committed and dropped is the same value."""


def _after(block: Block, kind: str, asked: Asked, result: Any) -> Iterable[Block]:
    whole = len(block.committed) == asked.shards
    mine = asked.store, asked.shard
    if kind == "hit":
        return (block,) if whole else ()
    if kind == "loaded":
        anywhere = asked.shard in block.committed | block.evicted
        return (block,) if whole or mine in block.own or anywhere else ()
    if kind in ("miss", "unloaded"):
        if not whole:
            return (block,)
        gone = Block(own=block.own, evicted=block.evicted | block.committed)
        return (gone,) if asked.evicts else ()
    if kind == "cut":
        return block, Block()
    if kind == "drop":
        return (block._replace(own=frozenset(one for one in block.own if one[0] != asked.store)),)
    if kind == "dump":
        dumped = block._replace(own=block.own | {mine})
        return (dumped,) if result else (dumped, block, block._replace(own=block.own - {mine}))
    return _committed(block, asked.store, block.shards(asked.store), result)


def _committed(block: Block, store: Store, mine: frozenset[int], result: Any) -> Iterator[Block]:
    """After a commit: all of the store's shards, or, of one that did not go well, any of them."""
    for count in range(len(mine) if result else 0, len(mine) + 1):
        for some in itertools.combinations(sorted(mine), count):
            done = {(store, shard) for shard in some}
            if mine or block.committed or not result:
                shards = block.committed | frozenset(some)
                yield block._replace(committed=shards, own=block.own - done)


def block_operations(run: Run) -> list[Op] | None:
    """The operations of the run's History; None where it is not to be judged."""
    history = run.observed.get("history") if isinstance(run.observed, dict) else None
    if not isinstance(history, History) or any(fault.family == "bug" for fault in run.faults):
        return None
    fired = [fault for fault, times in zip(run.faults, run.fired, strict=True) if times]
    if any(isinstance(fault, SILENT) for fault in fired):
        return None
    found = [op for call in history.calls for op in _operations(history, call)]
    for at in history.cuts:
        asked = Asked((-1, 0), 0, history.shards, history.evicts)
        told = Op(-1, None, "cut", asked, "done", at, at, "the power is cut")
        found += [told._replace(key=key) for key in dict.fromkeys(op.key for op in found)]
    return found


def _operations(history: History, call: Call) -> Iterator[Op]:
    asked = Asked((call.rank, call.opened), call.shard, history.shards, history.evicts)
    returned = call.ended if call.ended >= 0 else NEVER
    for index, block in enumerate(call.blocks):
        code = call.codes[index] if index < len(call.codes) and call.ended >= 0 else None
        kind, result = _kind(call, index, code)
        if kind and block not in call.wrong:
            text = f"{call}: block {block} {'no answer' if code is None else f'{code} ({kind})'}"
            yield Op(call.rank, f"block {block}", kind, asked, result, call.began, returned, text)


def _kind(call: Call, index: int, code: int | None) -> tuple[str, Any]:
    """What a call says of one block; "" for nothing."""
    if call.kind in ("dump", "commit"):
        kind = "drop" if call.kind == "commit" and not call.flags[index] else call.kind
        result = None if code in (None, TIMEOUT) else code == OK
        return ("" if code == BAD_PARAMETER else kind), result
    if code is None or call.error:
        return "", None
    if call.kind == "lookup" or (call.kind == "prefix" and all(call.codes[:index])):
        return ("hit" if code else "miss"), True
    if call.kind == "load" and code in (OK, NOT_FOUND):
        return ("loaded" if code == OK else "unloaded"), True
    return "", None


LINEARIZABLE = Linearizable(block_operations, BlockModel(), limit=200_000)
