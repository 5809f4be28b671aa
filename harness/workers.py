"""Calls spread over worker processes: each result with the number of its call, in the order of arrival.

Workers are spawned, not forked: torch's threads do not survive a fork. A worker gets one call at a time,
so what it was doing when it died is known; another one takes its place. Workers ignore Ctrl-C, which is
the parent's to answer; when the parent stops iterating, or dies, they end.

Not modelled: calls that need each other. Functions, arguments and results must pickle.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

import msgspec

from harness.errors import EngineError

POLL_SECONDS = 0.2
T = TypeVar("T")


class Died(msgspec.Struct, frozen=True):
    """Instead of a result: the worker died. code: its exit code, or minus the signal."""

    code: int

    def __str__(self) -> str:
        if self.code >= 0:
            return f"the process ended with exit code {self.code}"
        try:
            return f"the process was killed by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"the process was killed by signal {-self.code}"


def spread(
    function: Callable[..., T], calls: Sequence[tuple[Any, ...]], jobs: int,
    on_wait: Callable[[], None] | None = None,
) -> Iterator[tuple[int, T | Died]]:
    """(index, function(*calls[index])) for every call, as they finish.

    on_wait: called a few times a second from here; what it raises ends everything. An exception of a
    call ends everything too, as an EngineError with the worker's traceback.
    """
    left = iter(enumerate(calls))
    team = [_Worker[T](function) for _ in range(min(jobs, len(calls)))]
    try:
        for worker in team:
            worker.take(next(left, None))
        while any(worker.index is not None for worker in team):
            busy = {worker.connection: worker for worker in team if worker.index is not None}
            for connection in wait(list(busy), POLL_SECONDS):
                worker = busy[connection]  # type: ignore[index]
                assert worker.index is not None
                index, result = worker.index, worker.result()
                if isinstance(result, Died):
                    worker.start()
                worker.take(next(left, None))
                yield index, result
            if on_wait is not None:
                on_wait()
    finally:
        for worker in team:
            worker.stop()


class _Worker(Generic[T]):
    """One process and the call it is busy with."""

    connection: Connection
    process: BaseProcess

    def __init__(self, function: Callable[..., T]) -> None:
        self.function = function
        self.index: int | None = None
        self.start()

    def start(self) -> None:
        """A fresh process."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, self.function), daemon=True, name="rankfault worker"
        )
        # Blocked from its first instruction on, so that Ctrl-C prints no traceback of a half-made worker.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def take(self, call: tuple[int, tuple[Any, ...]] | None) -> None:
        """The next call, if there is one."""
        self.index = None
        if call is not None:
            self.index, arguments = call
            with contextlib.suppress(BrokenPipeError):  # it is dead already; `result` tells
                self.connection.send(arguments)

    def result(self) -> T | Died:
        """What the call gave."""
        try:
            fine, value = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            self.connection.close()
            return Died(self.process.exitcode or 0)
        if fine:
            result: T = value
            return result
        raise EngineError(f"in a worker process: {value}")

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.terminate()
        self.process.join()
        self.connection.close()


def _serve(connection: Connection, function: Callable[..., Any]) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    while True:
        try:
            arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = True, function(*arguments)
        except BaseException:
            answer = False, traceback.format_exc()
        connection.send(answer)
