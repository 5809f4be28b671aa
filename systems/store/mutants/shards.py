"""Mutants of blocks in shards: names, and when a block is whole."""

from __future__ import annotations

from harness import mutant
from systems.store import cache, posix
from systems.store.errors import DiskFailed


@mutant(of=posix.PosixStage._temporary, expects="store/uncommitted_visible", ranks=1)
def written_under_its_final_name(self: posix.PosixStage, block_id: bytes, shard: int) -> str:
    """A dump writes the file that readers look for, and commit has nothing to do.

    Source: LMCache issues 207 and 226, a block is read while it is written. Finding:
    store/uncommitted_visible. Smallest world: 1.
    """
    return self._path(block_id, shard)


@mutant(of=posix.PosixStage.visible, expects="store/uncommitted_visible", ranks=2)
def only_rank_zero_looked_up(self: posix.PosixStage, block_id: bytes) -> bool:
    """A block counts as there when its first shard is.

    Source: UCM issues 314 and 1033, the lookup asks for one rank's file only. Finding:
    store/uncommitted_visible. Smallest world: 2.
    """
    try:
        return self._disk.exists(self._path(block_id, 0))
    except OSError as error:
        raise DiskFailed.of(error, "lookup") from error


@mutant(of=posix.PosixStage._path, expects="store/lost_block", ranks=2)
def rank_missing_in_the_name(self: posix.PosixStage, block_id: bytes, shard: int) -> str:
    """All shards of a block go to one file, each over the one before.

    Source: SGLang issues 26670 and 10969. Finding: store/lost_block. Smallest world: 2.
    """
    return f"{self._folder(block_id)}{block_id.hex()}{self._ends[0]}.kv"


@mutant(of=cache.CacheStage.visible, expects="store/uncommitted_visible", ranks=1)
def lookup_answered_from_the_cache(self: cache.CacheStage, block_id: bytes) -> bool:
    """What was dumped is near, and what is near is called there, whether it was committed or not.

    Source: LMCache pull request 3554, phantom keys. Finding: store/uncommitted_visible. Smallest world:
    1.
    """
    nodes = getattr(self._pool, "_nodes", {})
    return any(key[0] == block_id for key in nodes) or self._lower.visible(block_id)
