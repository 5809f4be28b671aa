"""Mutants of a block's way to the disk and back: what is verified, continued, told and cleaned up."""

from __future__ import annotations

from collections import deque

from harness import mutant
from systems.store import blockfile, cache, front, header, posix, tasks
from systems.store.errors import OK, StoreError
from systems.store.header import HEADER_BYTES, Header
from systems.store.log import POSIX, STORE
from systems.store.piece import page_aligned, view_of
from systems.store.ports import Clock
from systems.store.stage import Dump


@mutant(of=header.require_intact, expects="store/silent_corruption", ranks=1)
def checksum_not_verified(header: Header, data: memoryview) -> None:
    """What was read is not compared with what was dumped.

    Source: Mooncake issues 3140 and 3003. Finding: store/silent_corruption. Smallest world: 1.
    """


@mutant(of=header.require_identity, expects="store/silent_corruption", ranks=1)
def id_not_verified(header: Header, key: tuple[bytes, int]) -> None:
    """A file's own id is not compared with the one that was asked for.

    Source: LMCache issue 4385, sessions get other requests' blocks from the disk tier. Finding:
    store/silent_corruption. Smallest world: 1.
    """


@mutant(of=blockfile.Files._get, expects="store/unexpected_error|store/lost_block", ranks=1)
def short_read_accepted(
    self: blockfile.Files, fd: int, view: memoryview, at: int, least: int
) -> None:
    """One read is all that is done; that it may bring less than was asked for is forgotten.

    Source: pread(2). Finding: store/unexpected_error|store/lost_block, a sound block is called damaged.
    Smallest world: 1.
    """
    self._disk.pread(fd, view, at)


@mutant(of=blockfile.Files._put, expects="store/lost_block|store/silent_corruption", ranks=1)
def short_write_accepted(self: blockfile.Files, fd: int, view: memoryview, at: int) -> None:
    """One write is all that is done; that it may take less than was given is forgotten.

    Source: pwrite(2). Finding: store/lost_block|store/silent_corruption, a cut file is committed.
    Smallest world: 1.
    """
    self._disk.pwrite(fd, view, at)


@mutant(of=blockfile.Files._move, expects="store/unexpected_error|store/lost_block", ranks=1)
def odd_tail_not_written(
    self: blockfile.Files, fd: int, data: memoryview, address: int, *, write: bool
) -> None:
    """Direct I/O moves whole units only, and what is left of a block behind the last one is
    forgotten.

    Source: UCM pull request 1176, a shard of 116,992 bytes. Finding:
    store/unexpected_error|store/lost_block. Smallest world: 1.
    """
    whole = len(data) // self._unit * self._unit if self._direct else len(data)
    for at in range(0, whole, blockfile.BOUNCE_BYTES):
        part = data[at : min(at + blockfile.BOUNCE_BYTES, whole)]
        move = self._put_bounced if write else self._get_bounced
        move(fd, part, HEADER_BYTES + at)
    if write and self._direct and len(data) % self._unit:
        self._disk.truncate(fd, HEADER_BYTES + len(data))


@mutant(
    of=blockfile.Files._lend, ranks=1,
    expects="store/unexpected_error|store/lost_block|store/collateral",
)
def bounce_buffer_shared_by_workers(self: blockfile.Files) -> blockfile.Bounce:
    """There is one bounce buffer for all workers: one fills it again while another's write reads it.

    Source: LMCache issue 4658, a page reused while a put still reads it. Finding:
    store/unexpected_error|store/lost_block|store/collateral, a header is another block's. Smallest
    world: 1.
    """
    if not self._bounce:
        memory = page_aligned(blockfile.BOUNCE_BYTES)
        self._bounce = deque((blockfile.Bounce(memory, view_of(memory)),), maxlen=1)
    return self._bounce[0]


@mutant(of=front.BlockStore._commit, expects="store/lost_block", ranks=1)
def announced_regardless_of_outcome(self: front.BlockStore, block_id: bytes, *, good: bool) -> int:
    """A commit that fails is logged, and acknowledged like the others.

    Source: LMCache issue 4991, a failure that is a warning. Finding: store/lost_block. Smallest world:
    1.
    """
    try:
        (self._top.commit if good else self._top.drop)(block_id)
    except StoreError as error:
        STORE.warning("commit: %s", error)
    return OK


@mutant(of=posix.PosixStage._publish, expects="store/lost_block", ranks=1)
def failed_rename_is_a_warning(self: posix.PosixStage, dump: Dump) -> None:
    """A rename that fails is logged, and the commit is acknowledged.

    Source: LMCache issue 4991, a failure that is a warning. Finding: store/lost_block. Smallest world:
    1.
    """
    try:
        self._disk.rename(dump.path, self._path(*dump.key))
    except OSError as error:
        POSIX.warning("rename of %s: %s", dump.path, error)
    self._dumps.committed(dump, whole=self._config.shards == 1)


@mutant(of=posix.PosixStage._committed_before, expects="store/lost_block", ranks=1)
def commit_of_nothing_acknowledged(self: posix.PosixStage, block_id: bytes) -> bool:
    """A commit that finds no dump is taken for the repetition of an earlier one.

    The reverse of UCM issue 141, where a commit fails although the file is there. Finding:
    store/lost_block, after a dump that failed. Smallest world: 1.
    """
    return True


@mutant(of=front.BlockStore._commit, expects="store/uncommitted_visible", ranks=1)
def flag_ignored(self: front.BlockStore, block_id: bytes, *, good: bool) -> int:
    """What was committed with False becomes visible like the rest.

    Source: UCM's debugging guide, commit takes a flag a block. Finding: store/uncommitted_visible.
    Smallest world: 1.
    """
    try:
        self._top.commit(block_id)
    except StoreError as error:
        return error.code
    return OK


@mutant(of=posix.PosixStage.abandon, expects="store/residue", ranks=1)
def dropped_file_left(self: posix.PosixStage, dump: Dump) -> None:
    """A dump that is given up is forgotten, and its temporary file with it.

    Source: LMCache issues 4664 and 2273, leftovers that fill the disk. Finding: store/residue. Smallest
    world: 1.
    """
    self._dumps.take_back(dump)


@mutant(of=cache.CacheStage.drop, expects="store/uncommitted_visible", ranks=1)
def dropped_block_stays_cached(self: cache.CacheStage, block_id: bytes) -> None:
    """The lower stage forgets what is dropped, the cache does not.

    Source: LMCache pull request 3620, an invalid object is left in the hot cache. Finding:
    store/uncommitted_visible, a load of it succeeds. Smallest world: 1.
    """
    self._lower.drop(block_id)


@mutant(of=tasks.Task.wait, expects="store/silent_corruption", ranks=1)
def wait_swallows_errors(self: tasks.Task, timeout: float | None, clock: Clock) -> int:
    """`wait` says that the task is over, not how it went.

    Source: vLLM issue 19329, the engine goes on with random data after a failed load. Finding:
    store/silent_corruption. Smallest world: 1.
    """
    self._require_not_waited()
    self.finished(timeout, clock)
    self._waited = True
    return OK


@mutant(of=tasks.Task._finish, expects="store/unexpected_error|store/silent_corruption", ranks=1)
def returns_after_the_first_block(
    self: tasks.Task, index: int, error: BaseException | None
) -> None:
    """A batch is done with its first block.

    Source: SGLang issue 8901, a counter that is advanced before the data is there. Finding:
    store/unexpected_error|store/silent_corruption. Smallest world: 1.
    """
    self.statuses[index] = tasks.code_of(error)
    if error is not None:
        self.failures[index] = self._failure(index, error)
    self._left -= 1
    if not self._done.is_set():
        self._done.set()


@mutant(of=tasks.Task.run, expects="store/collateral|store/lost_block", ranks=1)
def first_failure_ends_the_batch(self: tasks.Task) -> None:
    """After a block that fails the rest of the batch is given up with the same error.

    Source: SGLang issue 39444, a batch of writes stops at the first failure. Finding:
    store/collateral|store/lost_block. Smallest world: 1.
    """
    failed: Exception | None = None
    while (turn := self._next()) is not None:
        try:
            if failed is None:
                turn[1]()
        except Exception as error:
            failed = error
        self._finish(turn[0], failed)


@mutant(of=tasks.Task._give_up, expects="store/unexpected_error", ranks=1)
def cancelled_block_reported_as_done(
    self: tasks.Task, index: int, instead: tasks.Work
) -> None:
    """A block that was cancelled before its turn has the status of one that was done.

    Source: vllm-ascend issue 10561, blocks that failed are not reported. Finding:
    store/unexpected_error, it cannot be loaded. Smallest world: 1.
    """
    instead()
    self._finish(index, None)
