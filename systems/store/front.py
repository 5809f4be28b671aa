"""The store as its users see it: the documented calls, made of a pipeline's stages and workers.

Wrong calls raise at once; what goes wrong with a block is its status. See docs of each method.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch

from systems.store.config import StoreConfig, configured
from systems.store.errors import (
    OK,
    TIMEOUT,
    AlignmentError,
    BadParameter,
    BlockFailure,
    StoreClosed,
    StoreError,
)
from systems.store.log import PIPELINE, STORE, set_level
from systems.store.piece import Piece, checked_ids, pieces
from systems.store.ports import Clock, Disk, Executor
from systems.store.real import Lock, RealClock, RealDisk, Threads
from systems.store.stage import Stage
from systems.store.tasks import Task, Work

_handles = itertools.count(1)


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
        ids = checked_ids(block_ids)
        visible = self._top.visible
        found = [visible(one) for one in ids]
        STORE.info("lookup: %d blocks, hit: %d", len(ids), sum(found))
        return found

    def lookup_on_prefix(self, block_ids: Sequence[bytes]) -> int:
        """The index of the last block of the prefix that hits, or -1."""
        self._open()
        last = -1
        for one in checked_ids(block_ids):
            if not self._top.visible(one):
                break
            last += 1
        STORE.info("lookup on prefix: %d blocks, hit: %d", len(block_ids), last + 1)
        return last

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
        return self._started("dump", ids, offset, works)

    def load(
        self,
        block_ids: Sequence[bytes],
        offset: int = 0,
        dst_tensor: torch.Tensor | Sequence[torch.Tensor] = (),
    ) -> Task:
        """Read blocks into tensors, verified. What a failed block leaves in its tensor is undefined."""
        ids, made = self._checked(block_ids, offset, dst_tensor, distinct=False)
        works: list[tuple[Work, Work]] = [
            (_call(self._top.read, one, offset, piece), _nothing)
            for one, piece in zip(ids, made, strict=True)
        ]
        return self._started("load", ids, offset, works)

    def _checked(
        self, block_ids: Sequence[bytes], offset: int, tensors: Any, *, distinct: bool
    ) -> tuple[list[bytes], list[Piece]]:
        self._open()
        ids = checked_ids(block_ids, distinct=distinct)
        shards = self.config.shards
        if type(offset) is not int or not 0 <= offset < shards:
            raise BadParameter(f"offset (the shard index): given {offset!r}; allowed 0 to {shards - 1}")
        made = pieces(ids, tensors, self.config.block_size)
        if self.config.strict_alignment:
            unit = self.config.alignment
            for index, piece in enumerate(made):
                if piece.address % unit or piece.length % unit:
                    raise AlignmentError(
                        f"block {index}: address {piece.address:#x} (% {unit} = {piece.address % unit}),"
                        f" {piece.length} bytes (% {unit} = {piece.length % unit}); allowed: both 0"
                    )
        return ids, made

    def _started(self, kind: str, ids: list[bytes], shard: int, works: list[tuple[Work, Work]]) -> Task:
        task = Task(next(self._numbers), kind, ids, shard, self._executor.event())
        STORE.info("%s: task_id=%d, blocks=%d", kind, task.id, len(ids))
        if not ids:
            return task
        task.queue(works)
        with self._lock:
            self._running[task.id] = task
        try:
            for _ in range(min(self.config.workers, len(ids))):
                self._executor.submit(lambda: self._run(task))
        except BaseException:
            task.cancel()
            with self._lock:
                self._running.pop(task.id, None)
            raise
        return task

    def _run(self, task: Task) -> None:
        task.run()
        if task.done:
            with self._lock:
                first = self._running.pop(task.id, None)
            if first is not None:
                for index, failure in sorted(task.failures.items()):
                    where = f"block {index} ({failure.block_id.hex()} shard {failure.shard})"
                    told = (task.kind, task.id, where, failure.code, failure.text)
                    STORE.error("%s: task_id=%d, %s failed: %d, %s", *told)

    def wait(self, task: Task, timeout_ms: int | None = None) -> int:
        """0, or the negative code of the first block that failed. `timeout_ms` counts from this call.

        Without a final status in time: TIMEOUT, and the task may be waited for again. A second wait after
        a final status raises AlreadyWaited.
        """
        code = _task(task).wait(self._limit(timeout_ms), self._clock)
        if code == TIMEOUT and not task.done:
            STORE.warning("%s: task_id=%d has not finished", task.kind, task.id)
        return code

    def _limit(self, timeout_ms: int | None) -> float | None:
        limit = self.config.timeout_ms if timeout_ms is None else timeout_ms
        return limit / 1000 if limit else None

    def check(self, task: Task) -> tuple[int, bool]:
        """(status so far, whether every block is done); never waits."""
        done = _task(task).done
        return task.status, done

    def error(self, task: Task) -> BlockFailure | None:
        """The first block that failed: id, shard, errno, text, code; None while none has."""
        return _task(task).first_failure

    def cancel(self, task: Task) -> int:
        """Give up the blocks that no worker has begun; how many they were."""
        return _task(task).cancel()

    def commit(self, block_ids: Sequence[bytes], is_success: Sequence[bool] | bool = True) -> list[int]:  # noqa: FBT001, FBT002 - the documented call
        """Make dumped blocks visible (True) or drop them (False); a status a block, 0 is success."""
        self._open()
        ids = checked_ids(block_ids, distinct=True)
        flags = [is_success] * len(ids) if isinstance(is_success, bool) else list(is_success)
        if len(flags) != len(ids) or not all(isinstance(flag, bool) for flag in flags):
            raise BadParameter(
                f"commit: given {flags!r} for {len(ids)} block ids; allowed one bool a block"
            )
        codes = []
        for one, good in zip(ids, flags, strict=True):
            try:
                if good:
                    self._top.commit(one)
                else:
                    self._top.drop(one)
            except StoreError as error:
                STORE.error("commit: block %s failed: %d, %s", one.hex(), error.code, error)
                codes.append(error.code)
            else:
                codes.append(OK)
        return codes

    def prefetch(self, block_ids: Sequence[bytes], offset: int = 0) -> None:
        """Bring blocks nearer, if there is room; says nothing of success: a load will."""
        self._open()
        ids = checked_ids(block_ids)
        works = [(_call(self._top.prefetch, one, offset), _nothing) for one in ids]
        task = Task(next(self._numbers), "prefetch", ids, offset, self._executor.event())
        task.queue([(_quietly(work), instead) for work, instead in works])
        if ids:
            with self._lock:
                self._running[task.id] = task
            self._executor.submit(lambda: self._run(task))

    def close(self) -> None:
        """Cancel what has not begun, wait for the rest, remove what was not committed. Twice is fine."""
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
