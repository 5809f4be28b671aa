"""Threads of a rank's program, each a lane of its rank: it runs only when it has the turn.

While a rank's code runs, the doors of `threading`, `queue` and `concurrent.futures` are the rank's: a
new thread becomes a lane that begins during the run (fabric/late_lanes.py), locks are lanes' locks
(lane_locks.py), and the threads that `threading` knows, their numbers and what is done at exit are the
rank's own. As in Python, a rank ends when its non-daemon threads have; daemon threads are then dropped,
and a thread that raises has its error printed and does no more. An error that says that the run itself
is no good (a process started, no scheduling point, the rank's end) fails the rank wherever it is raised.

Refused with ThreadStarted: threads for which somebody waits in the operating system (multiprocessing's
pools), Pythons whose `threading` is made otherwise (from 3.13 on). Not modelled: a rank that has raised
waits for no thread; threads that native code starts.
"""

from __future__ import annotations

import concurrent.futures.thread as pools
import itertools
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import _base
from sys import _getframe
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from harness import ambient
from harness.errors import (
    NoDevice,
    NoSchedulingPoint,
    ProcessStarted,
    RankDied,
    RankExited,
    ThreadStarted,
    Unwound,
    one_line,
)
from harness.fabric.frames import user_frame
from harness.fabric.lanes import Lane
from harness.frontends.torch_distributed.environment import Entry
from harness.frontends.torch_distributed.event_loops import own_policy
from harness.frontends.torch_distributed.lane_locks import LaneLock, here, mine, stand
from harness.frontends.torch_distributed.watching import Watched
from harness.record import place as where

if TYPE_CHECKING:
    from harness.frontends.torch_distributed.place import Place
    from harness.frontends.torch_distributed.world import RankWorld

# What fails the rank in whichever of its threads it is raised.
_FAILS = (
    Unwound, NoSchedulingPoint, RankDied, RankExited, ProcessStarted, ThreadStarted, NoDevice,
)
_REFUSED = f"{os.sep}multiprocessing{os.sep}"
POSSIBLE = hasattr(threading, "_set_sentinel")  # as threading is made up to Python 3.12
_threading: Any = threading
_real_start: Any = getattr(threading, "_start_new_thread", None)
_real_sentinel: Any = getattr(threading, "_set_sentinel", None)


class _Own(dict[Any, Any]):
    """A dictionary of `threading` as a rank sees it; other threads of the process keep the shared one."""

    def __init__(self, shared: dict[Any, Any]) -> None:
        super().__init__()
        self._shared = shared

    def __missing__(self, key: Any) -> Any:
        return self._shared[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if mine() is None:
            self._shared[key] = value
        else:
            super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        if key in self:
            super().__delitem__(key)
        else:
            del self._shared[key]


class _Future(_base.Future[Any]):
    """An executor's: as_completed and wait keep them in sets, whose order is not to follow addresses."""

    def __init__(self) -> None:
        super().__init__()
        place = here.place
        self._number = id(self) if place is None else place.next_number()

    def __hash__(self) -> int:
        return self._number


class _InTurn(dict[Any, None]):
    """A set in the order in which it was filled."""

    def add(self, one: Any) -> None:
        """Put it in."""
        self[one] = None


class _InOrder(_base._AcquireFutures):
    """Locks futures in the order in which they were made, not in that of their addresses."""

    def __init__(self, futures: Any) -> None:
        super().__init__(futures)
        self.futures = sorted(futures, key=hash)


def _own_rlock() -> Any:
    made = _threading._PyRLock()
    made._block = LaneLock()
    made._block.quiet = True
    return made


class _Doors:
    """Variables of modules as the rank sees them, all at once: every scheduling point closes them and
    opens them again."""

    def __init__(self, own: dict[ModuleType, dict[str, Any]]) -> None:
        self._spaces = [(vars(module), names) for module, names in own.items()]
        self._shared: list[dict[str, Any]] = []
        self._absent: list[tuple[dict[str, Any], str]] = []
        self._open = False

    @property
    def open(self) -> bool:
        """Whether the rank's are in place."""
        return self._open

    @open.setter
    def open(self, value: bool) -> None:
        if value:
            if not self._shared:
                self._look()
            for space, names in self._spaces:
                space.update(names)
        elif self._open:
            for (space, names), shared in zip(self._spaces, self._shared, strict=True):
                for name in names:  # what the program has made of it
                    names[name] = space[name]
                space.update(shared)
            for space, name in self._absent:
                del space[name]
        self._open = value

    def _look(self) -> None:
        """What everybody else sees; nobody but ranks changes that during a run."""
        for space, names in self._spaces:
            self._shared.append({name: space[name] for name in names if name in space})
            self._absent += [(space, name) for name in names if name not in space]


class Threads:
    """The threads of one rank. world: its torch.distributed, whose groups its threads know."""

    def __init__(self, place: Place, world: RankWorld) -> None:
        self._place = place
        self._world = world
        self._at_exit: list[Callable[[], Any]] = [pools._python_exit]
        self._sentinels: dict[Lane, list[LaneLock]] = {}
        self._lanes: list[Lane] = []

    def doors(self) -> list[Entry]:
        """What differs while the rank's code runs (environment.py)."""
        if not POSSIBLE:
            return []
        clock = ambient.VIRTUAL["monotonic"]
        doors = _Doors({
            threading: {
                "_start_new_thread": self._start, "_set_sentinel": self._sentinel,
                "_allocate_lock": LaneLock, "Lock": LaneLock,
                "_CRLock": None,  # the one in Python is made of a Lock
                "_active": _Own(_threading._active), "_limbo": _Own(_threading._limbo),
                "_shutdown_locks": set(), "_counter": itertools.count(1).__next__,
                "_main_thread": threading.main_thread(), "_threading_atexits": self._at_exit,
                "_time": clock, "excepthook": threading.__excepthook__,
            },
            queue: {"time": clock, "SimpleQueue": queue._PySimpleQueue},  # type: ignore[attr-defined]
            pools: {
                "_global_shutdown_lock": LaneLock(), "_shutdown": False,
                "_threads_queues": weakref.WeakKeyDictionary(),
                "set": _InTurn,  # an executor's threads, which it joins in this order
            },
            _base: {"Future": _Future, "_AcquireFutures": _InOrder},
            logging: {"_lock": _own_rlock()},  # held while handlers are closed
        })
        return [
            own_policy(), (doors, "open", True),
            (pools.ThreadPoolExecutor, "_counter", itertools.count().__next__),
        ]

    def begin(self) -> None:
        """The rank's code begins, in its main thread."""
        if POSSIBLE:
            here.place = self._place
            _threading._main_thread = _threading._MainThread()

    def join(self) -> None:
        """The program's main thread has returned: wait for the others, as Python does."""
        while POSSIBLE and self._at_exit:
            self._at_exit.pop()()
        own = threading.current_thread()
        while others := [one for one in threading.enumerate() if one is not own and not one.daemon]:
            others[0].join()

    def end(self) -> None:
        """The rank is over: what threads are still there will not move again."""
        for lane in self._lanes:
            reason = lane.blocked_on
            if self._place.sim.stopping:
                continue  # all lanes end here
            if lane.state == "running" and reason is not None and reason[0] == "work":
                self._forget(reason[1])
            self._place.sim.drop(lane)
        here.place = None

    def _forget(self, number: int) -> None:
        """A call in which a dropped thread waits goes with it: no rank has left it out."""
        place = self._place
        place.calls[:] = [call for call in place.calls if call.number != number]
        place.outstanding.pop(number, None)

    # The doors ----------------------------------------------------------------------------------

    def _start(self, function: Callable[..., Any], args: Any = (), kwargs: Any = None) -> int:
        """What stands for threading._start_new_thread."""
        place = mine()
        if place is None:
            return int(_real_start(function, args, kwargs or {}))
        code, lasti, _ = stand(_getframe(1))
        told = place.called("a thread", code, lasti)
        if refused := _waits_outside(_getframe(1)):
            raise ThreadStarted(
                f"{told} is started for {refused}, which waits for it in the operating system, where no "
                "schedule can be replayed; use threading or concurrent.futures, or do without"
            )
        thread = getattr(function, "__self__", None)
        name = thread.name if isinstance(thread, threading.Thread) else str(function)
        kept: list[BaseException] = []
        if isinstance(thread, threading.Thread):
            thread.run = _keeping(thread.run, kept, place)  # type: ignore[method-assign]
        place.point("thread_start", -1, place.index, 0, 0)

        def program() -> None:
            self._run(lane, lambda: function(*args, **(kwargs or {})))
            if kept:
                raise kept[0]

        lane: Lane = place.outside(place.sim.start_thread, program, place.index, name)
        place.event("thread_start", place.index, 0, None, -1, code, lasti)
        place.joined_by(lane)
        self._lanes.append(lane)
        return int(lane.carrier.greenlet.ident)

    def _run(self, lane: Lane, body: Callable[[], Any]) -> None:
        """A thread's life, from its first turn on."""
        place = self._place
        lane.fresh = False
        here.place = place
        place.surroundings.enter()
        try:
            place.event("thread_begin", place.index, 0, None, -1, None, -1)
            self._world.known_in(lane)
            with Watched(place):
                body()
            place.ends(lane)
        finally:
            self._world.unknown_in(lane)
            for lock in self._sentinels.pop(lane, ()):
                if lock.locked():
                    lock.release()
            place.several -= 1
            place.surroundings.leave()
            here.place = None

    def _sentinel(self) -> Any:
        """What stands for threading._set_sentinel: a lock that is given back when its thread ends."""
        if mine() is None:
            return _real_sentinel()
        lock = LaneLock()
        self._sentinels.setdefault(self._place.lane, []).append(lock)
        return lock


def _waits_outside(frame: FrameType | None) -> str:
    """`multiprocessing`, if it starts the thread; else ""."""
    while frame is not None:
        path = frame.f_code.co_filename
        if _REFUSED in path and path.startswith(os.path.dirname(threading.__file__)):
            return _REFUSED.strip(os.sep)
        frame = frame.f_back
    return ""


def _keeping(run: Callable[[], None], kept: list[BaseException], place: Place) -> Callable[[], None]:
    """A thread's `run` that lets nothing through to the excepthook which fails the rank, and notes what
    it lets through."""

    def body() -> None:
        try:
            run()
        except _FAILS as error:
            kept.append(error)
        except Exception as error:
            place.lane.raised = f"raised at {where(*user_frame(error))}: {one_line(error)}"
            raise

    return body


__all__ = ["POSSIBLE", "Threads"]
