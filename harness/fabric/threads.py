"""OS threads that carry lanes, for programs inside which a greenlet must not switch (torch.distributed).

A switch inside native code kills a greenlet's process; so each lane gets a thread of its own, of which
exactly one runs: `Baton` has a greenlet's switch and throw, and hands the turn over by a lock. Threads
are kept between runs, as greenlets are (carrier.py). What torch keeps by thread (gradient mode,
autocast) is then the lane's own without more ado.

Ctrl-C and a test's time limit strike the main thread, which mostly waits for its turn: the run is then
told to stop, and the lane that runs is unwound. A lane that blocks in native code is out of reach;
after GRACE_SECONDS it is left behind, with its stack in the failure.

Not modelled: lanes that run at the same time.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from harness import ambient
from harness.errors import Unwound

GRACE_SECONDS = 5.0
LOOK_SECONDS = 0.25  # how often a waiting hub looks whether it has been told to give up


class LeftBehind(BaseException):
    """The hub takes the turn back from a lane that cannot be reached."""


class Baton:
    """A place that may have the turn: a lane's thread, or the hub that started the run.

    interrupted, given_up: the hub's: called with what a signal raised while a lane had the turn; whether
    to take the turn back from a lane that cannot be reached.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False  # left behind
        self.parent: Baton | None = None
        self.ident = threading.get_ident()
        self.interrupted: Callable[[BaseException], None] | None = None
        self.given_up: Callable[[], bool] = lambda: False
        self._turn = threading.Lock()  # held while it has not the turn
        self._turn.acquire()
        self._thrown: BaseException | type[BaseException] | None = None

    @property
    def gr_frame(self) -> FrameType | None:
        """Where the thread is now."""
        return sys._current_frames().get(self.ident)

    def switch(self) -> None:
        """Hand the turn to this one; return when the caller has it again."""
        mine = current()
        self._turn.release()
        mine.wait()

    def throw(self, error: BaseException | type[BaseException]) -> None:
        """The same; this one resumes by raising `error`."""
        self._thrown = error
        self.switch()

    def wait(self) -> None:
        """Block until the turn comes. Raises what is thrown with it, or LeftBehind (the hub)."""
        if self.interrupted is None:
            self._turn.acquire()
        else:
            self._wait_as_hub()
        thrown, self._thrown = self._thrown, None
        if thrown is not None:
            raise thrown

    def _wait_as_hub(self) -> None:
        waited: float | None = None
        while True:
            try:
                while not self._turn.acquire(timeout=LOOK_SECONDS):
                    if self.given_up() or (waited and ambient.now() > waited + GRACE_SECONDS):
                        raise LeftBehind
                return
            except LeftBehind:
                raise
            except BaseException as error:  # the main thread's signals
                if self.interrupted is None:
                    raise
                self.interrupted(error)
                waited = ambient.now()


class _Here(threading.local):
    baton: Baton | None = None


_here = _Here()


def current() -> Baton:
    """The calling thread's baton."""
    assert _here.baton is not None
    return _here.baton


def hub() -> Baton:
    """A new baton for the calling thread, which starts a run; a lane that an earlier run has left
    behind hands its turn to the old one."""
    _here.baton = Baton("hub")
    return _here.baton


class ThreadCarrier:
    """One reusable thread. Set `job`, then switch to `greenlet`."""

    __slots__ = ("greenlet", "job")

    def __init__(self, number: int) -> None:
        self.job: Callable[[], Any] | None = None
        self.greenlet = Baton(f"rankfault-lane-{number}")
        thread = threading.Thread(target=self._loop, name=self.greenlet.name, daemon=True)
        ambient.start_thread(thread)

    def _loop(self) -> None:
        _here.baton = baton = self.greenlet
        baton.ident = threading.get_ident()
        ambient.joins_runs()
        torch.set_num_threads(1)
        with torch.autograd.set_multithreading_enabled(False):
            baton._turn.acquire()
            while True:
                assert self.job is not None
                following = self.job()
                following.switch()


_pool: list[ThreadCarrier] = []
_made = 0


def borrow() -> ThreadCarrier:
    """A thread that waits for a job."""
    global _made
    if _pool:
        return _pool.pop()
    _made += 1
    return ThreadCarrier(_made)


def give_back(carrier: ThreadCarrier) -> None:
    """Keep a carrier whose job has ended, but nothing of the job."""
    carrier.job = None
    if not carrier.greenlet.dead:
        _pool.append(carrier)


os.register_at_fork(after_in_child=_pool.clear)  # threads do not cross a fork


def strike(baton: Baton) -> None:
    """Have a lane's thread raise Unwound at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(baton.ident), ctypes.py_object(Unwound)
    )


__all__ = ["Baton", "LeftBehind", "ThreadCarrier", "borrow", "current", "give_back", "hub", "strike"]
