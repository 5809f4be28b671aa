"""The store as its users see it: the documented calls, made of a pipeline's stages and workers.

Wrong calls raise at once; what goes wrong with a block is its status. See docs of each method.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch

from systems.store.config import TIMEOUT_MAX, StoreConfig, configured
from systems.store.errors import (
    OK,
    TIMEOUT,
    AlignmentError,
    BadParameter,
    BlockFailure,
    StoreClosed,
    StoreError,
    StoreForked,
)
from systems.store.log import PIPELINE, STORE, set_level
from systems.store.piece import Piece, checked_ids, pieces
from systems.store.ports import Clock, Disk, Executor
from systems.store.real import Lock, RealClock, RealDisk, Threads
from systems.store.stage import Stage
from systems.store.tasks import Task, Work

_handles = itertools.count(1)
TOLD_MAX = 8  # failed blocks of one task, a line each; the rest is counted


class BlockStore:
    """A store over the stage that `_build` makes. Safe to call from several threads."""

    pipeline = ""  # a connector whose stages are fixed names them here

    def __init__(
        self,
        config: Mapping[str, Any] | StoreConfig,
        *,
        disk: Disk | None = None,
        executor: Executor | None = None,
        clock: Clock | None = None,
    ) -> None:
        set_level()
        given = msgspec.structs.asdict(config) if isinstance(config, StoreConfig) else config
        if self.pipeline and isinstance(given, Mapping):
            given = {**given, "store_pipeline": self.pipeline}
        self.config = configured(given)
        self.storage_path = self.config.storage_path
        self.stages = self.config.store_pipeline.split("|")
        self._owns_executor = executor is None
        self._executor = Threads(self.config.workers) if executor is None else executor
        self._clock = RealClock() if clock is None else clock
        self._handle = next(_handles)
        self._process = os.getpid()
        self._numbers = itertools.count(1)
        self._running: dict[int, Task] = {}
        self._lock = Lock()
        self._closed = False
        PIPELINE.info("pipeline stages %s", self.stages)
        self._top = self._build(RealDisk() if disk is None else disk)

    def _build(self, disk: Disk) -> Stage:
        """The top stage; each connector's own."""
        raise NotImplementedError

    def __enter__(self) -> BlockStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cc_store(self) -> int:
        """A number that stands for this store object in this process."""
        return self._handle

    def lookup(self, block_ids: Sequence[bytes]) -> list[bool]:
        """Whether each block is committed with all its shards; a miss stops nothing."""
        self._open()
        found = self._hits(checked_ids(block_ids))
        STORE.info("lookup: %d blocks, hit: %d", len(found), sum(found))
        return found

    def _hits(self, ids: list[bytes]) -> list[bool]:
        """One answer an id."""
        visible = self._top.visible
        return [visible(one) for one in ids]

    def lookup_on_prefix(self, block_ids: Sequence[bytes]) -> int:
        """The index of the last block of the prefix that hits, or -1."""
        self._open()
        count = self._prefix(checked_ids(block_ids))
        STORE.info("lookup on prefix: %d blocks, hit: %d", len(block_ids), count)
        return count - 1

    def _prefix(self, ids: list[bytes]) -> int:
        """How many of the ids, from the first on, hit."""
        for count, one in enumerate(ids):
            if not self._top.visible(one):
                return count
        return len(ids)

    def dump(
        self,
        block_ids: Sequence[bytes],
        offset: int = 0,
        src_tensor: torch.Tensor | Sequence[torch.Tensor] = (),
    ) -> Task:
        """Write blocks; `offset` is the shard index. Leave the tensors alone until it is done."""
        ids, made = self._checked(block_ids, offset, src_tensor, distinct=True)
        top = self._top
        works: list[tuple[Work, Work]] = []
        for one, piece in zip(ids, made, strict=True):
            dump = top.begin(one, offset)
            works.append((_call(top.write, dump, piece), _call(top.abandon, dump)))
        return self._started("dump", ids, offset, works, self.config.workers)

    def load(
        self,
        block_ids: Sequence[bytes],
        offset: int = 0,
        dst_tensor: torch.Tensor | Sequence[torch.Tensor] = (),
    ) -> Task:
        """Read blocks into tensors, verified. What a failed block leaves in its tensor is undefined.

        The tensors are the store's until the task is done, also after a timeout or a cancel: wait again.
        """
        ids, made = self._checked(block_ids, offset, dst_tensor, distinct=False)
        works: list[tuple[Work, Work]] = [
            (_call(self._top.read, one, offset, piece), _nothing)
            for one, piece in zip(ids, made, strict=True)
        ]
        return self._started("load", ids, offset, works, self.config.workers)

    def _checked(
        self, block_ids: Sequence[bytes], offset: int, tensors: Any, *, distinct: bool
    ) -> tuple[list[bytes], list[Piece]]:
        self._open()
        ids = checked_ids(block_ids, distinct=distinct)
        self._check_shard(offset)
        made = pieces(ids, tensors, self.config.block_size)
        if self.config.strict_alignment:
            self._check_alignment(made)
        return ids, made

    def _check_shard(self, offset: int) -> None:
        shards = self.config.shards
        if type(offset) is not int or not 0 <= offset < shards:
            raise BadParameter(f"offset (the shard index): given {offset!r}; allowed 0 to {shards - 1}")

    def _check_alignment(self, made: list[Piece]) -> None:
        unit = self.config.alignment
        for index, piece in enumerate(made):
            if piece.address % unit or piece.length % unit:
                raise AlignmentError(
                    f"block {index}: address {piece.address:#x} (% {unit} = {piece.address % unit}),"
                    f" {piece.length} bytes (% {unit} = {piece.length % unit}); allowed: both 0"
                )

    def _started(
        self, kind: str, ids: list[bytes], shard: int, works: list[tuple[Work, Work]], workers: int
    ) -> Task:
        task = Task(next(self._numbers), kind, ids, shard, self._executor.event())
        STORE.info("%s: task_id=%d, blocks=%d", kind, task.id, len(ids))
        task.queue(works)
        try:
            self._register(task)
            for _ in range(min(workers, len(ids))):
                self._executor.submit(lambda: self._run(task))
        except BaseException as error:
            task.cancel()
            self._unregister(task)
            if self._closed and isinstance(error, RuntimeError):  # the workers went in between
                self._open()
            raise
        return task

    def _register(self, task: Task) -> None:
        """From now on close waits for it; refused once closing has begun."""
        with self._lock:
            self._open()
            if task.ids:
                self._running[task.id] = task

    def _unregister(self, task: Task) -> bool:
        """Whether it was registered until now."""
        with self._lock:
            return self._running.pop(task.id, None) is not None

    def _run(self, task: Task) -> None:
        task.run()
        if task.done and self._unregister(task):
            failures = sorted(task.failures.items())
            for index, failure in failures[:TOLD_MAX]:
                where = f"block {index} ({failure.block_id.hex()} shard {failure.shard})"
                told = (task.kind, task.id, where, failure.code, failure.text)
                STORE.error("%s: task_id=%d, %s failed: %d, %s", *told)
            if len(failures) > TOLD_MAX:
                more = len(failures) - TOLD_MAX
                STORE.error("%s: task_id=%d, %d more blocks failed", task.kind, task.id, more)

    def wait(self, task: Task, timeout_ms: int | None = None) -> int:
        """0, or the negative code of the first block that failed. `timeout_ms` counts from this call.

        Without a final status in time: TIMEOUT, and the task may be waited for again. A second wait after
        a final status raises AlreadyWaited.
        """
        self._require_own_process()
        code = _task(task).wait(self._limit(timeout_ms), self._clock)
        if code == TIMEOUT and not task.done:
            STORE.warning("%s: task_id=%d has not finished", task.kind, task.id)
        return code

    def _limit(self, timeout_ms: int | None) -> float | None:
        limit = self.config.timeout_ms if timeout_ms is None else timeout_ms
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= TIMEOUT_MAX:
            raise BadParameter(
                f"timeout_ms: given {timeout_ms!r}; allowed None or 0 to {TIMEOUT_MAX} (0: no limit)"
            )
        return limit / 1000 if limit else None

    def check(self, task: Task) -> tuple[int, bool]:
        """(status so far, whether every block is done); never waits."""
        done = _task(task).done
        return task.status, done

    def error(self, task: Task) -> BlockFailure | None:
        """The first block that failed: id, shard, errno, text, code; None while none has."""
        return _task(task).first_failure

    def cancel(self, task: Task) -> int:
        """Give up the blocks that no worker has begun; how many they were. Then wait for the rest."""
        return _task(task).cancel()

    def commit(self, block_ids: Sequence[bytes], is_success: Sequence[bool] | bool = True) -> list[int]:  # noqa: FBT001, FBT002 - the documented call
        """Make dumped blocks visible (True) or drop them (False); a status a block, 0 is success."""
        self._open()
        ids = checked_ids(block_ids, distinct=True)
        flags = [is_success] * len(ids) if isinstance(is_success, bool) else is_success
        right = isinstance(flags, Sequence) and len(flags) == len(ids)
        if not right or not all(isinstance(flag, bool) for flag in flags):
            raise BadParameter(
                f"commit: given {flags!r} for {len(ids)} block ids; allowed one bool a block"
            )
        return [self._commit(one, good=good) for one, good in zip(ids, flags, strict=True)]

    def _commit(self, block_id: bytes, *, good: bool) -> int:
        """One block's status."""
        try:
            if good:
                self._top.commit(block_id)
            else:
                self._top.drop(block_id)
        except StoreError as error:
            STORE.error("commit: block %s failed: %d, %s", block_id.hex(), error.code, error)
            return error.code
        return OK

    def prefetch(self, block_ids: Sequence[bytes], offset: int = 0) -> None:
        """Bring blocks nearer, if there is room; says nothing of success: a load will."""
        self._open()
        ids = checked_ids(block_ids)
        self._check_shard(offset)
        works: list[tuple[Work, Work]] = [
            (_quietly(_call(self._top.prefetch, one, offset)), _nothing) for one in ids
        ]
        self._started("prefetch", ids, offset, works, 1)

    def close(self) -> None:
        """Cancel what has not begun, wait for the rest, remove what was not committed. Twice is fine.

        In a forked child it does nothing: all that is the parent's.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            first, self._closed = not self._closed, True
            running = list(self._running.values())
        if not first:
            return
        for task in running:
            task.cancel()
        limit = self._limit(None)
        late = [task.id for task in running if not task.finished(limit, self._clock)]
        self._top.close()
        if late:
            STORE.error("close: tasks %s have not finished; their temporary files stay", late)
        elif self._owns_executor:
            self._executor.close()

    def _open(self) -> None:
        if self._closed:
            raise StoreClosed("this store is closed")
        self._require_own_process()

    def _require_own_process(self) -> None:
        """Workers, locks and uncommitted dumps do not pass to a forked child."""
        if os.getpid() != self._process:
            raise StoreForked(
                f"this store belongs to process {self._process}, and this is its forked child"
                f" {os.getpid()}; allowed: a store that the child creates"
            )


def _call(function: Callable[..., None], *values: Any) -> Work:
    return lambda: function(*values)


def _nothing() -> None:
    return None


def _quietly(work: Work) -> Work:
    def run() -> None:
        try:
            work()
        except StoreError as error:
            STORE.debug("prefetch: %s", error)

    return run


def _task(task: Any) -> Task:
    if not isinstance(task, Task):
        raise BadParameter(f"task: given {task!r}; allowed what dump or load returned")
    return task
