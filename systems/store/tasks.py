"""A task: the blocks of one dump or load, each with its own status.

Workers take blocks from the task's queue one after another; one block's failure stops no other. A task
is held by its caller only, so one that nobody waits for is gone with its last reference. It lets its
tensors go when the last block is done. Until then they are the store's, also after a timeout: a disk
operation that has begun cannot be called back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from systems.store.errors import (
    FAILED,
    NO_MEMORY,
    OK,
    TIMEOUT,
    AlreadyWaited,
    BlockFailure,
    StoreError,
    TaskCancelled,
)
from systems.store.ports import Clock, Event
from systems.store.real import Lock

Work = Callable[[], None]


class Task:
    """`statuses` has one code a block, None while it runs; `failures` says why, by index."""

    def __init__(self, number: int, kind: str, ids: list[bytes], shard: int, done: Event) -> None:
        self.id = number
        self.kind = kind
        self.ids = ids
        self.shard = shard
        self.statuses: list[int | None] = [None] * len(ids)
        self.failures: dict[int, BlockFailure] = {}
        self._queue: deque[tuple[int, Work, Work]] = deque()
        self._left = len(ids)
        self._done = done
        self._lock = Lock()
        self._waited = False
        if not ids:
            done.set()

    def __repr__(self) -> str:
        return f"Task({self.id}, {self.kind}, blocks={len(self.ids)}, left={self._left})"

    def queue(self, works: list[tuple[Work, Work]]) -> None:
        """What to do for each block, and what instead when it is cancelled before its turn."""
        self._queue.extend((index, work, instead) for index, (work, instead) in enumerate(works))

    def run(self) -> None:
        """A worker's job: blocks until none is left. Never raises."""
        while True:
            try:
                index, work, _ = self._queue.popleft()
            except IndexError:
                return
            try:
                work()
            except Exception as error:  # the port's contract: a job never raises
                self._finish(index, error)
            except BaseException as error:  # the worker itself is being torn down
                self._finish(index, error)
                raise
            else:
                self._finish(index, None)
            del work

    def cancel(self) -> int:
        """Give up the blocks whose turn has not come; how many. Those running go on."""
        count = 0
        while True:
            try:
                index, _, instead = self._queue.popleft()
            except IndexError:
                return count
            count += 1
            try:
                instead()
            except Exception as error:
                self._finish(index, error)
            else:
                self._finish(index, TaskCancelled("cancelled before its turn"))

    def _finish(self, index: int, error: BaseException | None) -> None:
        code, failure = OK, None
        if error is not None:
            code = error.code if isinstance(error, StoreError) else FAILED
            code = NO_MEMORY if isinstance(error, MemoryError) else code
            text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            number = getattr(error, "errno", 0) or 0
            failure = BlockFailure(self.ids[index], self.shard, number, text, code)
        with self._lock:
            self.statuses[index] = code
            if failure is not None:
                self.failures[index] = failure
            self._left -= 1
            last = not self._left
        if last:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether every block has its status."""
        return self._done.is_set()

    @property
    def status(self) -> int:
        """0, or the code of the first block (in the call's order) that failed so far."""
        return next((code for code in self.statuses if code), OK)

    @property
    def first_failure(self) -> BlockFailure | None:
        """The failure behind `status`."""
        with self._lock:
            return self.failures[min(self.failures)] if self.failures else None

    def finished(self, timeout: float | None, clock: Clock) -> bool:
        """Wait, `timeout` seconds from now at most; whether it is done."""
        if timeout is None:
            return self._done.wait(None)
        deadline = clock.now() + timeout
        while not self._done.is_set():
            left = deadline - clock.now()
            if left <= 0:
                break
            self._done.wait(left)
        return self._done.is_set()

    def wait(self, timeout: float | None, clock: Clock) -> int:
        """The final status, once; TIMEOUT when there is none yet, and then it may be waited for again."""
        with self._lock:
            if self._waited:
                raise AlreadyWaited(f"task {self.id} ({self.kind}) was waited for already")
            self._waited = True
        if not self.finished(timeout, clock):
            with self._lock:
                self._waited = False
            return TIMEOUT
        return self.status
