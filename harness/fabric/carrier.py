"""Greenlets that carry lanes, kept between runs, and the watchdog.

Making a greenlet costs about twenty switches, so a carrier is borrowed for a lane and given back when
the lane has ended. A carrier's greenlet runs one job after the other; each job returns the greenlet
that goes on.

The watchdog is one daemon thread for the process. When a run makes no event for `LIMIT_SECONDS`, it
raises NoSchedulingPoint in the thread that runs it: the lane that is looping gets it, with its stack.
A loop inside native code is interrupted only when it returns to Python.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from greenlet import getcurrent, greenlet

from harness.ambient import nap, now
from harness.errors import NoSchedulingPoint

LIMIT_SECONDS = 10.0
POOL_MAX = 64


class Carrier:
    """One reusable greenlet. Set `job`, then switch to `greenlet`."""

    __slots__ = ("greenlet", "job", "thread")

    def __init__(self) -> None:
        self.job: Callable[[], greenlet]
        self.thread = threading.get_ident()
        self.greenlet = greenlet(self._loop)

    def _loop(self) -> None:
        while True:
            following = self.job()
            following.switch()


_pool: list[Carrier] = []


def borrow() -> Carrier:
    """A carrier of the current thread."""
    me = threading.get_ident()
    while _pool:
        carrier = _pool.pop()
        if carrier.thread == me:
            carrier.greenlet.parent = getcurrent()
            return carrier
    return Carrier()


def give_back(carrier: Carrier) -> None:
    """Keep a carrier whose job has ended."""
    if len(_pool) < POOL_MAX:
        _pool.append(carrier)


class _Watchdog:
    def __init__(self) -> None:
        self.watched: Any = None
        self.thread_id = 0
        self.pid_thread: threading.Thread | None = None

    def ensure(self) -> None:
        if self.pid_thread is None or not self.pid_thread.is_alive():
            self.pid_thread = threading.Thread(
                target=self._loop, name="rankfault-watchdog", daemon=True
            )
            self.pid_thread.start()

    def _loop(self) -> None:
        seen: tuple[int, int] = (0, -1)
        since = now()
        while True:
            nap(min(0.25, LIMIT_SECONDS / 4))
            world = self.watched
            state = (id(world), len(world.events) if world is not None else -1)
            if world is None or state != seen:
                seen, since = state, now()
            elif now() - since >= LIMIT_SECONDS:
                since = now()
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.thread_id), ctypes.py_object(NoSchedulingPoint)
                )


_watchdog = _Watchdog()


@contextmanager
def watch(simulation: Any) -> Iterator[None]:
    """Have the watchdog look after one run."""
    _watchdog.thread_id = threading.get_ident()
    _watchdog.watched = simulation
    try:
        yield
    finally:
        _watchdog.watched = None


def start_watchdog() -> None:
    """Start the watchdog thread; called before a run, while threads may still be started."""
    _watchdog.ensure()
