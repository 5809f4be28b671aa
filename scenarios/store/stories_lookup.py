"""The story *lookup always misses*: one process dumps, the others look up the same prompt and miss.

Told apart by what the reader's folder holds: it is not there; it holds nothing of the writer's; it holds
the writer's blocks under other ids; temporary files that nobody committed; or neither of them, because
commit was told that the dump had failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from harness import Scenario, SimulatedDisk, World, mutant
from scenarios.store.stories import PATH, Stories, Symptom, Workers, block_ids, idle, opened

PROMPT = "the quick brown fox"
OTHER_PATH = "/kv2"
BYTES = 512


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """blocks: of the prompt."""

    blocks: Annotated[int, Meta(ge=1, le=8)] = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """One reader. path_was_there: before it opened the store. files: in its folder, by name."""

    rank: int
    path: str
    path_was_there: bool
    ids: tuple[str, ...]
    hits: tuple[bool, ...]
    files: tuple[str, ...]


@dataclass(slots=True)
class Looked:
    """The writer's path, ids and what its commits said; the readers."""

    path: str
    ids: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    seen: list[Seen] = field(default_factory=list)

    def symptoms(self) -> Iterator[Symptom]:
        """One for each reader that misses."""
        for one in self.seen:
            if not all(one.hits):
                missed = sum(not hit for hit in one.hits)
                because, *evidence = self._why(one)
                yield Symptom(
                    "lookup_misses", one.rank,
                    f"rank {one.rank} misses {missed} of {len(one.hits)} blocks that rank 0 dumped",
                    tuple(evidence), because,
                )

    def _why(self, one: Seen) -> tuple[str, ...]:
        stored = sorted({name.split(".")[0] for name in one.files if name.endswith(".kv")})
        waiting = sorted(name for name in one.files if name.endswith(".tmp"))
        held = f"{one.path} holds {len(stored)} blocks and {len(waiting)} temporary files"
        if one.path != self.path:
            return "other_path", f"rank 0 writes to {self.path}, rank {one.rank} reads {one.path}", held
        if not one.path_was_there:
            return "path_absent", f"{one.path} was not there before rank {one.rank} opened it", held
        if one.ids != self.ids:
            first = next(i for i, (a, b) in enumerate(zip(self.ids, one.ids, strict=True)) if a != b)
            ids = f"rank 0 made {self.ids[first]}, rank {one.rank} made {one.ids[first]}"
            return "ids_differ", f"block {first} of the same prompt: {ids}", held
        if any(name.split(".")[0] in self.ids for name in waiting):
            return "never_committed", held, f"{waiting[0]} is complete and was never renamed"
        told = f"commit said {list(self.codes)}, and nothing of the blocks is left"
        return "committed_false", held, told


def storage_path(rank: int) -> str:
    """Where a process opens the store."""
    return PATH


def mounted(shared: SimulatedDisk, rank: int) -> SimulatedDisk:
    """The file system that a process sees."""
    return shared


def ids_of(prompt: str, count: int, rank: int) -> list[bytes]:
    """The prompt's block ids, in one process."""
    return block_ids(prompt, count)


def commit(store: Any, ids: Sequence[bytes]) -> list[int]:
    """Make the blocks visible."""
    return list(store.commit(ids, [True] * len(ids)))


def _host(world: World, params: Prompt) -> Looked:
    for rank in range(world.size):
        world.dispatch(idle, device=rank)
    workers = Workers()
    shared = SimulatedDisk(clock=workers.time)
    ids = ids_of(PROMPT, params.blocks, 0)
    looked = Looked(storage_path(0), tuple(one.hex() for one in ids))
    writer = opened(mounted(shared, 0), workers, storage_path(0), writer="rank-0")
    data = torch.arange(params.blocks * BYTES, dtype=torch.int32).to(torch.uint8)
    if writer.wait(writer.dump(ids, 0, data.reshape(params.blocks, BYTES))) == 0:
        looked.codes = tuple(commit(writer, ids))
    for rank in range(1, world.size):
        disk, path = mounted(shared, rank), storage_path(rank)
        there = disk.exists(path)
        reader = opened(disk, workers, path, writer=f"rank-{rank}")
        asked = ids_of(PROMPT, params.blocks, rank)
        hits = tuple(reader.lookup(asked))
        made = tuple(one.hex() for one in asked)
        looked.seen.append(Seen(rank, path, there, made, hits, tuple(_files(disk, f"{path}/data"))))
    return looked


def _files(disk: SimulatedDisk, folder: str) -> Iterator[str]:
    for name in sorted(disk.listdir(folder)):
        path = f"{folder}/{name}"
        if disk.stat(path).is_dir:
            yield from _files(disk, path)
        else:
            yield name


@mutant(of=mounted, expects="store/lookup_misses", ranks=2)
def path_absent(shared: SimulatedDisk, rank: int) -> SimulatedDisk:
    """The readers' host has not mounted the storage, so that the store makes an empty folder there.

    Finding: store/lookup_misses. Smallest world: 2.
    """
    return shared if rank == 0 else SimulatedDisk()


@mutant(of=storage_path, expects="store/lookup_misses", ranks=2)
def other_path(rank: int) -> str:
    """The readers are configured with another path.

    Finding: store/lookup_misses. Smallest world: 2.
    """
    return PATH if rank == 0 else OTHER_PATH


@mutant(of=ids_of, expects="store/lookup_misses", ranks=2)
def hash_seed(prompt: str, count: int, rank: int) -> list[bytes]:
    """Ids come from a hash that every process seeds for itself (PYTHONHASHSEED).

    Finding: store/lookup_misses. Smallest world: 2.
    """
    return [hashlib.md5(f"{rank}:{prompt}:{number}".encode()).digest() for number in range(count)]


@mutant(of=commit, expects="store/lookup_misses", ranks=2)
def never_committed(store: Any, ids: Sequence[bytes]) -> list[int]:
    """The writer forgets to commit.

    Finding: store/lookup_misses. Smallest world: 2.
    """
    return []


@mutant(of=commit, expects="store/lookup_misses", ranks=2)
def committed_false(store: Any, ids: Sequence[bytes]) -> list[int]:
    """The writer commits its blocks as failed.

    Finding: store/lookup_misses. Smallest world: 2.
    """
    return list(store.commit(ids, [False] * len(ids)))


story = Scenario(
    name="store.story_lookup_misses", host=_host, params=Prompt, ranks=(2, 4), checkers=(Stories(),),
    mutants={
        one.name: one for one in (path_absent, other_path, hash_seed, never_committed, committed_false)
    },
    doc="Troubleshooting: what one process dumped, the others do not find.",
)
