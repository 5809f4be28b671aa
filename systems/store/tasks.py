"""A task: the blocks of one dump or load, each with its own status.

Workers take blocks from the task's queue one after another; one block's failure stops no other. A task
is held by its caller only, so one that nobody waits for is gone with its last reference.

Until it is done the task keeps its tensors alive, and they are the store's, also after a timeout and a
cancel: a disk operation that has begun cannot be called back, so a load may still write into its
target. `wait` again, or `check`, says when it no longer can. A block whose turn had not come when it was
cancelled never touches its tensor; one that was running ends as if nothing had happened.
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


def code_of(error: BaseException | None) -> int:
    """The status that stands for `error`."""
    if error is None:
        return OK
    if isinstance(error, StoreError):
        return error.code
    return NO_MEMORY if isinstance(error, MemoryError) else FAILED


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
        while (turn := self._next()) is not None:
            index, work, _ = turn
            try:
                work()
            except Exception as error:  # the port's contract: a job never raises
                self._finish(index, error)
            except BaseException as error:  # the worker itself is being torn down
                self._finish(index, error)
                raise
            else:
                self._finish(index, None)
            del turn, work  # they hold tensors

    def cancel(self) -> int:
        """Give up the blocks whose turn has not come; how many. Those running go on."""
        count = 0
        while (turn := self._next()) is not None:
            self._give_up(turn[0], turn[2])
            count += 1
        return count

    def _next(self) -> tuple[int, Work, Work] | None:
        """Each block is taken once, by a worker or by who cancels."""
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def _give_up(self, index: int, instead: Work) -> None:
        """Block `index` will not be done; its status says so."""
        try:
            instead()
        except Exception as error:
            self._finish(index, error)
        else:
            self._finish(index, TaskCancelled("cancelled before its turn"))

    def _finish(self, index: int, error: BaseException | None) -> None:
        """Set a block's status; with the last one the task is done."""
        failure = None if error is None else self._failure(index, error)
        with self._lock:
            self.statuses[index] = code_of(error)
            if failure is not None:
                self.failures[index] = failure
            self._left -= 1
            last = not self._left
        if last:
            self._done.set()

    def _failure(self, index: int, error: BaseException) -> BlockFailure:
        text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        number = getattr(error, "errno", 0) or 0
        return BlockFailure(self.ids[index], self.shard, number, text, code_of(error))

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
        """The final status, once; TIMEOUT when there is none yet, and then it may be waited for again.

        Of several threads that wait, one gets the final status and the others AlreadyWaited.
        """
        self._require_not_waited()
        if not self.finished(timeout, clock):
            return TIMEOUT
        with self._lock:
            self._require_not_waited()
            self._waited = True
        return self.status

    def _require_not_waited(self) -> None:
        if self._waited:
            raise AlreadyWaited(f"task {self.id} ({self.kind}) was waited for already")
