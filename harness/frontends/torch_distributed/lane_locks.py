"""Locks of a program's threads: whoever waits for one gives the turn away.

A LaneLock is what `threading.Lock` makes while a rank's code runs; Condition, Event, Queue, Semaphore,
Barrier, Future and Thread.join are made of such locks and work as they are. A blocking acquire is a
wait of the lane, its time-out virtual. Where the rank has threads, every acquire is a scheduling point,
so that the schedule decides who comes first; a rank without threads takes its locks at no cost.

Inside there is a real lock: outside of runs, and for threads that are in none, it is one like any other.
A lock that a lane of an earlier run has kept is free. While a module is being imported a free lock is
taken without a scheduling point, since the import system holds a real lock then; and what a library makes
while it is being imported is a real lock, as it would be had it been imported before the run.

Not modelled: data races between two scheduling points; an order in which waiters are served; a library's
own locks, held over a scheduling point (whoever waits for one blocks in native code: a finding after ten
seconds).
"""

from __future__ import annotations

import threading
from sys import _getframe
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from harness.fabric.frames import is_library
from harness.fabric.lanes import Lane

if TYPE_CHECKING:
    from harness.frontends.torch_distributed.place import Place

_allocate = threading.Lock  # the real one
_IMPORTS = "<frozen importlib._bootstrap>"


class _Here(threading.local):
    place: Place | None = None


here = _Here()  # the rank in whose lane the calling thread is


def mine() -> Place | None:
    """The rank whose code the calling thread is running; None for threads that are in no run."""
    place = here.place
    return place if place is not None and place.surroundings.in_force else None


def stand(frame: FrameType | None) -> tuple[CodeType | None, int, bool]:
    """The user's code and instruction, and whether a module is being imported."""
    code, lasti = None, -1
    while frame is not None:
        path = frame.f_code.co_filename
        if path == _IMPORTS:
            return code, lasti, True
        if code is None and not is_library(path):
            code, lasti = frame.f_code, frame.f_lasti
        frame = frame.f_back
    return code, lasti, False


class LaneLock:
    """A lock. holder: the lane that has it, as far as a lane has it. quiet: while it is free it is taken
    without a scheduling point (a library's, of which nobody can say how often it is taken)."""

    quiet = False

    def __new__(cls) -> Any:
        """A real lock, for a library that is being imported."""
        code, _, importing = stand(_getframe(1))
        return _allocate() if importing and code is None else super().__new__(cls)

    def __init__(self) -> None:
        self._real = _allocate()
        self._waiters: list[Lane] = []
        self._sim: Any = None  # of those who wait, or hold it
        self.holder: Lane | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        """Take it, as threading.Lock does; `timeout` in virtual seconds."""
        place = mine()
        if place is None:
            return self._real.acquire(blocking, timeout)
        if timeout != -1 and (timeout < 0 or not blocking):
            raise ValueError(
                "timeout value must be a non-negative number" if blocking
                else "can't specify a timeout for a non-blocking call"
            )
        if self._real.locked() and self._sim is not place.sim:
            if self.holder is None:  # a thread of the real world has it
                return self._real.acquire(blocking, timeout)
            self.release()
        code, lasti, importing = stand(_getframe(1)) if place.several else (None, -1, True)
        if (importing or self.quiet) and self._take(place.sim, place.lane):
            return True
        if not place.several:
            if not blocking:
                return False
            code, lasti, _ = stand(_getframe(1))
        return self._at_a_point(place, code, lasti, blocking, timeout)

    def _at_a_point(
        self, place: Place, code: CodeType | None, lasti: int, blocking: bool,  # noqa: FBT001
        timeout: float,
    ) -> bool:
        sim, lane = place.sim, place.lane
        number = place.number_of(self)
        if blocking:
            reason = ("lock", self, code, lasti)
            if self._real.locked():
                sim.block(lane, reason)
                if timeout >= 0:
                    sim.wake_at(lane, timeout)
            else:
                lane.blocked_on = reason
            self._sim = sim
            self._waiters.append(lane)
        else:
            place.reads()
        try:
            place.point("lock", -1, place.index, number, number)
        finally:
            lane.blocked_on = None
            if blocking:
                self._waiters.remove(lane)
        taken = self._take(sim, lane)
        if taken:
            lane.reads = 0
        sim.events.append((
            lane.index, "lock" if taken else "lock_missed", -1, place.index, number, number, None, -1,
            code, lasti,
        ))
        return taken

    def _take(self, sim: Any, lane: Lane) -> bool:
        if not self._real.acquire(False):  # noqa: FBT003
            return False
        self._sim, self.holder = sim, lane
        for other in self._waiters:  # one whose time is over goes on all the same
            if other.enabled and other.blocked_on is not None and other.inject is None:
                reason = other.blocked_on
                sim.block(other, reason)
        return True

    def release(self) -> None:
        """Give it back, whoever has it. Raises RuntimeError if nobody has."""
        self._real.release()
        self.holder = None
        for lane in self._waiters:
            if lane.blocked_on is not None:
                self._sim.unblock(lane)

    def locked(self) -> bool:
        """Whether somebody has it; no scheduling point."""
        return self._real.locked()

    acquire_lock, release_lock, locked_lock = acquire, release, locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        """What a Condition asks, without taking it to see."""
        return self._real.locked()

    def _at_fork_reinit(self) -> None:
        self._real, self._waiters, self.holder = _allocate(), [], None

    def holder_for(self, lane: Lane) -> int:
        """The number of the lane that has it, other than `lane`; -1 if none."""
        holder = self.holder
        if holder is None or holder is lane or holder.state != "running":
            return -1
        return holder.index

    def told(self, lane: Lane) -> str:
        """In what a lane waits for it, from where the lane stands now: `Queue.get of q`."""
        frame = lane.carrier.greenlet.gr_frame
        outer: FrameType | None = None
        while frame is not None and is_library(frame.f_code.co_filename):
            inner = frame.f_code
            if inner.co_filename.startswith(_STDLIB) and not inner.co_name.startswith("__"):
                outer = frame
            frame = frame.f_back
        if outer is None:
            return f"Lock.acquire{_named(self, frame)}"
        owner = outer.f_locals.get("self")
        text = f"{outer.f_code.co_qualname}{_named(owner, frame)}"
        if isinstance(owner, threading.Thread) and frame is not None:
            return f"{text} (thread {owner.name!r})"
        return text


_STDLIB = threading.__file__.removesuffix("threading.py")


def _named(wanted: Any, frame: FrameType | None) -> str:
    """` of q`: the variable of the user's frame that holds the object."""
    if frame is None or wanted is None:
        return ""
    held = dict(frame.f_locals)
    owner = held.get("self")
    held.update((f"self.{name}", value) for name, value in getattr(owner, "__dict__", {}).items())
    for name, value in (*held.items(), *frame.f_globals.items()):
        if value is wanted:
            return f" of {name}"
    return ""


__all__ = ["LaneLock", "here", "mine", "stand"]
