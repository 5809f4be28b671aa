"""Mutants of what happens when several want the same block at once."""

from __future__ import annotations

from harness import mutant
from systems.store import cache, dumps, pool, posix, tasks
from systems.store.errors import StoreError
from systems.store.piece import Piece
from systems.store.stage import Dump


@mutant(of=posix.PosixStage._temporary, expects="store/unexpected_error|store/lost_block", ranks=1)
def temporary_name_shared(self: posix.PosixStage, block_id: bytes, shard: int) -> str:
    """All writers of a block use one temporary name, and each removes what it takes for an old
    leftover.

    Source: LMCache issue 2517 and llm-d-kv-cache issue 176. Finding:
    store/unexpected_error|store/lost_block, a file that is still being written gets its final name.
    Smallest world: 1.
    """
    path = f"{self._folder(block_id)}{block_id.hex()}{self._ends[shard]}.tmp"
    self._remove(path)
    return path


@mutant(of=dumps.Dumps.claim, expects="store/unexpected_error|store/lost_block", ranks=1)
def running_dump_committed(self: dumps.Dumps, block_id: bytes) -> list[Dump]:
    """A commit does not ask whether the dump is done.

    Source: LMCache issues 207 and 226, no barrier between write and read. Finding:
    store/unexpected_error|store/lost_block, by another client's dump of the same block. Smallest world:
    1.
    """
    with self._lock:
        found = list(self._dumps.get(block_id, {}).values())
        for dump in found:
            dump.state = "committing"
        return found


@mutant(of=pool.PrivatePool._evictable, expects="store/silent_corruption|store/lost_block", ranks=1)
def references_ignored(self: pool.PrivatePool, node: pool.Node) -> bool:
    """The buffer that was used longest ago is given to another block, also while somebody works with
    it.

    Source: LMCache issue 4133, pins that do not hold. Finding:
    store/silent_corruption|store/lost_block. Smallest world: 1.
    """
    return True


@mutant(of=pool.PrivatePool._reuse, expects="store/silent_corruption|store/lost_block", ranks=1)
def freed_under_its_users(self: pool.PrivatePool, node: pool.Node) -> None:
    """A buffer that is cached no more is free at once, also while somebody works with it.

    Source: LMCache issue 1858, an allocation is locked and a free is not. Finding:
    store/silent_corruption|store/lost_block. Smallest world: 1.
    """
    self._free.setdefault(node.buffer.numel(), []).append(node.buffer)


@mutant(of=pool.PrivatePool.outcome, expects="store/silent_corruption", ranks=1)
def owner_not_awaited(self: pool.PrivatePool, node: pool.Node) -> StoreError | None:
    """Who finds a buffer that another load is filling reads it at once.

    Source: SGLang issue 8901, reads before the copy is complete. Finding: store/silent_corruption.
    Smallest world: 1.
    """
    return node.error


@mutant(
    of=cache.CacheStage.write, ranks=1,
    expects="store/lost_block|store/silent_corruption|store/collateral",
)
def buffer_let_go_before_the_write(self: cache.CacheStage, dump: Dump, piece: Piece) -> None:
    """A dump gives its buffer back when the data is in it, and the lower stage still reads it.

    Source: UCM pull request 1162, a buffer is reused while I/O still runs. Finding:
    store/lost_block|store/silent_corruption|store/collateral. Smallest world: 1.
    """
    node = self._pool.take(dump.key, piece.length, piece.dtype)
    if node is None:
        self._lower.write(dump, piece)
        return
    piece.copied_to(node.piece)
    self._pool.let_go(node)
    self._lower.write(dump, node.piece)


@mutant(of=pool.PrivatePool.failed, expects="store/silent_corruption", ranks=1)
def failed_load_left_ready(self: pool.PrivatePool, node: pool.Node, error: StoreError) -> None:
    """A buffer that could not be filled is marked ready: there is no mark for failed.

    Source: UCM pull request 1158, only a ready bit and no failed state. Finding:
    store/silent_corruption. Smallest world: 1.
    """
    self._tell(node)


@mutant(of=pool.PrivatePool._tell, expects="deadlock/missing_notify|deadlock/wrong_cell", ranks=1)
def waiters_not_told_of_failure(self: pool.PrivatePool, node: pool.Node) -> None:
    """Only a buffer that was filled wakes who waits for it; a failure does not.

    Source: UCM pull request 1158, peers wait until their timeout when the owner's load failed. Finding:
    deadlock/missing_notify|deadlock/wrong_cell. Smallest world: 1.
    """
    if node.filled is not None and node.error is None:
        node.filled.set()


@mutant(of=tasks.Task._finish, expects="store/hang", ranks=1)
def failed_blocks_not_counted(
    self: tasks.Task, index: int, error: BaseException | None
) -> None:
    """Only blocks that succeed count towards the end of the task.

    Source: LMCache issue 5047, a request waits for ever for a load. Finding: store/hang. Smallest
    world: 1.
    """
    self.statuses[index] = tasks.code_of(error)
    if error is not None:
        self.failures[index] = self._failure(index, error)
        return
    self._left -= 1
    if not self._left:
        self._done.set()
