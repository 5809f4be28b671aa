"""Greenlets that carry lanes, kept between runs, the watchdog, and one run at a time.

Making a greenlet costs about twenty switches, so a carrier is borrowed for a lane and given back when
the lane has ended. A carrier's greenlet runs one job after the other; each job returns the greenlet
that goes on. Greenlets belong to the thread that made them, so every thread has a pool of its own.

When torch raises, it takes a backtrace of up to 65 native frames. Behind a greenlet's first frame stands
whatever its thread has there now, and walking into that kills the process. So a carrier's jobs begin
behind CALLS_BELOW calls through C, about four native frames each: the backtrace ends among them.

The watchdog is one daemon thread for the process. When a run makes no event for `LIMIT_SECONDS`, it
raises NoSchedulingPoint in the thread that runs it: the lane that is looping gets it, with its stack.
If the program swallows that, the next time `Unwound` follows, which `except Exception` lets through.
What the machine withholds is not the lane's to answer for: the time that a thread of the process has
waited for a processor does not count, up to nine tenths of it. Nor is an import cut off, which would
leave half a module to whoever imports it next, unless it takes ten times as long.
A loop inside native code is interrupted only when it returns to Python; a lane on a thread of its own
(threads.py) is left behind after SHOTS_MAX shots more.

Runs change what the whole process shares (time, generators), so `exclusive` lets threads run one after
the other, and refuses a run inside a run.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from operator import call
from typing import Any

from greenlet import getcurrent, greenlet

from harness.ambient import nap, now, processor_waits
from harness.errors import NoSchedulingPoint, Unwound, UsageError

LIMIT_SECONDS = 10.0
POOL_MAX = 64
SHOTS_MAX = 2
CALLS_BELOW = 24
IMPORT_LIMITS = 10  # that an import may take
WITHHELD_MAX = 0.9  # of the time: a lane in native code ends too, whatever another thread waits for


class Carrier:
    """One reusable greenlet. Set `job`, then switch to `greenlet`."""

    __slots__ = ("greenlet", "job")

    def __init__(self) -> None:
        self.job: Callable[[], greenlet] | None = None
        self.greenlet = greenlet(self._deep)

    def _deep(self, calls: int = CALLS_BELOW) -> None:
        if calls:
            call(self._deep, calls - 1)
        else:
            self._loop()

    def _loop(self) -> None:
        while True:
            assert self.job is not None
            following = self.job()
            following.switch()


class _Pool(threading.local):
    def __init__(self) -> None:
        self.carriers: list[Carrier] = []


_pool = _Pool()


def borrow() -> Carrier:
    """A carrier of the current thread; its context variables are a copy of the caller's."""
    carriers = _pool.carriers
    if carriers:
        carrier = carriers.pop()
        carrier.greenlet.parent = getcurrent()
    else:
        carrier = Carrier()
    carrier.greenlet.gr_context = copy_context()
    return carrier


def give_back(carrier: Carrier) -> None:
    """Keep a carrier whose job has ended, but nothing of the job."""
    carrier.job = None
    if len(_pool.carriers) < POOL_MAX and not carrier.greenlet.dead:
        _pool.carriers.append(carrier)


class _Exclusive:
    """One simulated run at a time in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise UsageError(
                "a run was started inside a run: a rank or host program cannot call run(); call it "
                "outside, or make its plan a scenario of its own"
            )
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *exc: object) -> None:
        self._owner = 0
        self._lock.release()


exclusive = _Exclusive()


class _Watchdog:
    def __init__(self) -> None:
        self.watched: Any = None
        self.run = 0
        self.shots = 0
        self.struck: list[int] = []
        self.thread_id = 0
        self.lock = threading.Lock()
        self.pid_thread: threading.Thread | None = None

    def ensure(self) -> None:
        if self.pid_thread is None or not self.pid_thread.is_alive():
            self.pid_thread = threading.Thread(
                target=self._loop, name="rankfault-watchdog", daemon=True
            )
            self.pid_thread.start()

    def _loop(self) -> None:
        seen: tuple[int, int, int] = (0, -1, -1)
        since, waits = now(), processor_waits()
        while True:
            nap(min(0.25, LIMIT_SECONDS / 4))
            with self.lock:
                world = self.watched
                if world is None:
                    seen = (0, -1, -1)
                    continue
                # Before the first event each lane has a time limit of its own.
                state = (self.run, len(world.events), world.current.index)
                if state != seen:
                    seen, since, waits, self.shots = state, now(), processor_waits(), 0
                elif self.over(granted(now() - since, waits)):
                    since, waits = now(), processor_waits()
                    self.raise_in_run(Unwound if self.shots else NoSchedulingPoint)
                    self.shots += 1

    def over(self, seconds: float) -> bool:
        """Whether a lane that has had so many seconds must end."""
        if seconds < LIMIT_SECONDS:
            return False
        limits = IMPORT_LIMITS if importing(self.watched.thread_id(self.thread_id)) else 1
        return seconds >= limits * LIMIT_SECONDS

    def raise_in_run(self, error: type[BaseException]) -> None:
        """Have the thread that runs raise `error` at its next bytecode."""
        thread = self.watched.thread_id(self.thread_id)
        self.watched.struck = self.watched.current
        self.struck.append(thread)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))

    def take_back(self) -> None:
        """What it raised too late must not hit the caller, nor a later run."""
        while self.struck:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.struck.pop()), None)


def importing(thread: int) -> bool:
    """Whether a thread is in the middle of an import."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def granted(seconds: float, waits: dict[int, float]) -> float:
    """How many of the last `seconds` count. waits: the threads' waits for a processor before them."""
    withheld = [after - waits.get(thread, 0.0) for thread, after in processor_waits().items()]
    return seconds - min(max(withheld, default=0.0), seconds * WITHHELD_MAX)


_watchdog = _Watchdog()


@contextmanager
def watch(simulation: Any) -> Iterator[None]:
    """Have the watchdog look after one run."""
    dog = _watchdog
    dog.thread_id = threading.get_ident()
    dog.run += 1
    dog.shots = 0
    dog.watched = simulation
    try:
        yield
    finally:
        with dog.lock:
            dog.watched = None
            dog.take_back()


def out_of_reach() -> bool:
    """Whether the running lane has ignored whatever was raised in it: it blocks in native code."""
    return _watchdog.shots > SHOTS_MAX


def running() -> tuple[Any, int] | None:
    """The simulation that is running now and its thread's identifier, or None."""
    simulation = _watchdog.watched
    if simulation is None:
        return None
    return simulation, simulation.thread_id(_watchdog.thread_id)


def start_watchdog() -> None:
    """Start the watchdog thread; called before a run, while threads may still be started."""
    _watchdog.ensure()
