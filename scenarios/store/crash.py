"""A store that loses power: up to three calls, a crash anywhere in them, and what its successor finds.

The calls: dump block a or b, commit what is dumped (or drop it), load, and evict: another store with
little capacity dumps and commits a block of its own, c, and collects the others. Each call stands in the
disk's log between marks. A plan's `crash` says where the power goes and what of the disk is left of what
`profile` allows; without one the calls are made and nothing else. After it the store is opened again:

- under fsync what was acknowledged is there, and right;
- a block that can be seen is whole (flush, fsync), or its damage is noticed (none);
- nothing can be seen of which no commit had begun;
- temporary files are reclaimed, and every block can be dumped, committed and loaded again.

Not modelled here: several threads and processes at once; faults besides the crash; the Cache stage, which
has no durable state.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import torch
from msgspec import Meta

from harness import Aftermath, Durable, Rank, Scenario, SimulatedDisk, World
from scenarios.store.alone import open_alone
from scenarios.store.crash_checker import CrashChecker
from scenarios.store.history import ELEMENT, POISON, content
from systems.store.errors import OK, StoreError
from systems.store.front import BlockStore
from systems.store.piece import page_aligned

FOLDER = "/store"
BLOCKS = "abc"
IDS = {name: hashlib.md5(f"block {name}".encode()).digest() for name in BLOCKS}
PROMISES = {"none": "", "flush": "whole", "fsync": "durable"}
AFTERWARDS = 1_000_000.0  # seconds: all that was there before the crash is old by then

CallName = Literal["dump a", "dump b", "commit true", "commit false", "load", "evict"]
CALLS: tuple[CallName, ...] = ("dump a", "dump b", "commit true", "commit false", "load", "evict")


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """calls: what the store is asked for, in order. elements: int32 values of a block."""

    calls: Annotated[tuple[CallName, ...], Meta(max_length=3)] = ("dump a", "commit true", "dump b")
    durability: Literal["fsync", "flush", "none"] = "fsync"
    profile: Literal["posix", "ext4", "nfs"] = "posix"
    elements: Annotated[int, Meta(ge=1, le=1000)] = 200


def workloads(most: int = 3) -> Iterator[tuple[CallName, ...]]:
    """Every sequence of up to `most` calls, the shorter ones first."""
    for length in range(most + 1):
        yield from itertools.product(CALLS, repeat=length)


class Step(NamedTuple):
    """A call that changes what is promised, between its marks: indexes in the log, -1 for no answer."""

    begun: int
    acknowledged: int
    commits: str = ""  # blocks of the commit that were acknowledged, or would be
    evicts: bool = False


class Promise(NamedTuple):
    """must: blocks that are there whatever happens. may: blocks that may be there."""

    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()


NOTHING = Promise()


@dataclass(slots=True)
class Stage:
    """One life of the disk, from one crash to the next: what was done, and what was wrong with it.

    wrong: kind of finding and text. told: the crash before it, in words.
    """

    disk: SimulatedDisk
    params: Params
    before: Promise = NOTHING
    told: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)

    def promise(self, at: int) -> Promise:
        """What holds when the crash comes after `at` entries of the log."""
        must, may = set(self.before.must), set(self.before.may)
        for step in self.steps:
            if step.begun >= at:
                break
            may.update(step.commits)
            if step.evicts:
                must -= {"a", "b"}
            if 0 <= step.acknowledged < at and self.params.durability == "fsync":
                must.update(step.commits)
        return Promise(frozenset(must), frozenset(may))

    def call(self, what: str, store: BlockStore, blocks: Sequence[str], *, evicts: bool = False) -> bool:
        """A commit between its marks; whether it was acknowledged."""
        disk = self.disk
        begun = len(disk.log)
        disk.mark("begun", what)
        codes = store.commit(_ids(blocks), [True] * len(blocks))
        good = "".join(block for block, code in zip(blocks, codes, strict=True) if code == OK)
        if good:
            disk.mark("acknowledged", what, PROMISES[self.params.durability])
        # What has failed may be visible all the same, and is promised to nobody.
        self.steps.append(Step(begun, -1, "".join(blocks), evicts))
        if good:
            self.steps.append(Step(begun, len(disk.log) - 1, good))
        return len(good) == len(blocks)

    def dump(self, store: BlockStore, blocks: Sequence[str]) -> bool:
        """Whether all the blocks' dumps went well."""
        task = store.dump(_ids(blocks), 0, _contents(tuple(blocks), self.params.elements))
        return store.wait(task) == OK

    def load(self, store: BlockStore, blocks: Sequence[str]) -> str:
        """The blocks whose load went well; what it brings is compared."""
        size = self.params.elements
        target = page_aligned(4 * size * len(blocks)).view(ELEMENT).fill_(POISON)
        task = store.load(_ids(blocks), 0, target)
        store.wait(task)
        loaded = "".join(
            block for block, code in zip(blocks, task.statuses, strict=True) if code == OK
        )
        if not torch.equal(target, _contents(tuple(blocks), size)):
            for index, block in enumerate(blocks):
                part = target[index * size : (index + 1) * size]
                if block in loaded and not torch.equal(part, _contents((block,), size)):
                    told = f"block {block} is told good and holds other bytes"
                    self.wrong.append(("silent_corruption", told))
        return loaded

    def open(self, seconds: float, writer: str, **config: Any) -> BlockStore:
        """A store on this disk."""
        return open_alone(
            self.disk, seconds, storage_path=FOLDER, durability=self.params.durability, writer=writer,
            residue_seconds=3600, **config,
        )


def _ids(blocks: Sequence[str]) -> list[bytes]:
    return [IDS[block] for block in blocks]


@functools.cache
def _contents(blocks: tuple[str, ...], elements: int) -> torch.Tensor:
    """The blocks' data, one after another."""
    return torch.cat([content(BLOCKS.index(block), 0, elements) for block in blocks])


def worked(params: Params) -> Stage:
    """The calls, on a new disk; the store is not closed."""
    stage = Stage(SimulatedDisk(direct_block=512, profile=params.profile), params)
    store = stage.open(0.0, "before")
    dumped: list[str] = []
    for number, call in enumerate(params.calls):
        what = f"call {number + 1}, {call}"
        if call in ("dump a", "dump b"):
            if not stage.dump(store, call[-1]):
                stage.wrong.append(("unexpected_error", f"{what} fails"))
            dumped = sorted({*dumped, call[-1]})
        elif call == "commit true":
            good = stage.call(what, store, dumped or ["a"])
            if dumped and not good:
                stage.wrong.append(("unexpected_error", f"{what} fails"))
            dumped = []
        elif call == "commit false":
            store.commit(_ids(dumped), [False] * len(dumped))
            dumped = []
        elif call == "load":
            stage.load(store, "ab")
        else:
            _evict(stage, what)
    return stage


def _evict(stage: Stage, what: str) -> None:
    """Another store on the folder, with room for one block, puts its own there."""
    size = 4096 + 4 * stage.params.elements
    other = stage.open(0.0, "other", capacity_bytes=size * 5 // 4)
    if not stage.dump(other, "c") or not stage.call(what, other, "c", evicts=True):
        stage.wrong.append(("unexpected_error", f"{what} fails"))
    other.close()


def recovered(disk: SimulatedDisk, promise: Promise, params: Params) -> Stage:
    """A new store where the old one has crashed, and all that is to hold of it."""
    stage = Stage(disk, params, before=promise)
    try:
        store = stage.open(AFTERWARDS, "after")
        _inspect(stage, store)
        _redump(stage, store)
        store.close()
    except (StoreError, OSError) as error:
        stage.wrong.append(("unexpected_error", f"the recovery raises {type(error).__name__}: {error}"))
        return stage
    _residue(stage, "after the store is closed")
    return stage


def _inspect(stage: Stage, store: BlockStore) -> None:
    """What is there before anything is done."""
    hits = [block for block, hit in zip(BLOCKS, store.lookup(_ids(BLOCKS)), strict=True) if hit]
    loaded = stage.load(store, hits) if hits else ""
    for block in BLOCKS:
        if block in hits and block not in stage.before.may:
            stage.wrong.append(("uncommitted_visible", f"block {block} hits; no commit had begun"))
        if block in stage.before.must and block not in hits:
            stage.wrong.append(("lost_block", f"block {block} misses; its commit was acknowledged"))
        if block in hits and block not in loaded and stage.params.durability != "none":
            stage.wrong.append(("torn_block", f"block {block} hits and cannot be loaded"))
    _residue(stage, "after the store is opened")


def _residue(stage: Stage, when: str) -> None:
    left = [name for name in stage.disk.tree.names() if name.endswith(".tmp")]
    if left:
        stage.wrong.append(("residue", f"{len(left)} temporary files {when}; the first is {left[0]}"))


def _redump(stage: Stage, store: BlockStore) -> None:
    """Every block once more."""
    if not stage.dump(store, BLOCKS):
        stage.wrong.append(("unexpected_error", "the blocks cannot be dumped again"))
    if not stage.call("recovery, commit", store, BLOCKS):
        stage.wrong.append(("unexpected_error", "what was dumped again cannot be committed"))
    hits = store.lookup(_ids(BLOCKS))
    loaded = stage.load(store, BLOCKS)
    for block, hit in zip(BLOCKS, hits, strict=True):
        if not hit or block not in loaded:
            stage.wrong.append(("lost_block", f"block {block} was committed again and is not to be had"))


def _nothing(rank: Rank) -> None:
    """The world's only rank has no part in this."""


def host(world: World, params: Params) -> dict[str, Any]:
    """The calls."""
    stage = worked(params)
    world.dispatch(_nothing, device=0)
    return {"disk": stage.disk, "stage": stage}


def recovery(world: World, params: Params, aftermath: Aftermath) -> dict[str, Any]:
    """What the store's successor finds."""
    before: Stage = aftermath.observed["stage"]
    stage = recovered(aftermath.disk, before.promise(aftermath.crash.at), params)
    stage.told = before.told + aftermath.told
    world.dispatch(_nothing, device=0)
    return {"disk": stage.disk, "stage": stage}


scenario = Scenario(
    name="store.crash", host=host, recovery=recovery, reference=None, params=Params, ranks=(1, 1),
    checkers=(CrashChecker(), Durable()), doc="A store loses power anywhere in up to three calls.",
)
