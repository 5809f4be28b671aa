"""asyncio in a rank's program: an event loop that has nothing to do gives the turn away.

A loop waits in `select` of the operating system, in real time, where neither the schedule nor the virtual
clock would go on. While a rank's code runs, a loop that waits for nobody outside sleeps in a lock
(lane_locks.py) instead, with the same time-out, which is virtual: so timers, tasks, `to_thread` and
`call_soon_threadsafe` are scheduled like threads. Each rank has a policy, and so loops, of its own.

Not modelled: signal handlers of a loop, which are never called (as with `signal.signal`); a loop that
watches sockets or pipes waits in the operating system as ever; a task that does nothing but `sleep(0)`
until another thread has done something; the order of sets of coroutines (`as_completed`), which follows
addresses; other loops (uvloop).
"""

from __future__ import annotations

import asyncio
import asyncio.events
import asyncio.selector_events
import asyncio.unix_events
import selectors
import weakref
from typing import Any

from harness.frontends.torch_distributed.environment import Entry
from harness.frontends.torch_distributed.lane_locks import LaneLock, mine

_Loop: Any = asyncio.selector_events.BaseSelectorEventLoop
_Unix: Any = asyncio.unix_events._UnixSelectorEventLoop
_Selector: Any = selectors.DefaultSelector
_real_pipe = _Loop._make_self_pipe
_real_write = _Loop._write_to_self
_real_select = _Selector.select
_real_add = _Unix.add_signal_handler
_real_remove = _Unix.remove_signal_handler
_OWN_PIPE = 1  # what every loop watches, to be woken by other threads


_bells: weakref.WeakKeyDictionary[Any, LaneLock] = weakref.WeakKeyDictionary()  # by selector


def own_policy() -> Entry:
    """What differs while one rank's code runs (environment.py)."""
    return asyncio.events, "_event_loop_policy", None


def loop_names() -> list[tuple[Any, str, Any]]:
    """What is replaced during a run; it acts for ranks only."""
    return [
        (_Loop, "_make_self_pipe", _make_pipe), (_Loop, "_write_to_self", _write),
        (_Selector, "select", _select), (_Unix, "add_signal_handler", _add_handler),
        (_Unix, "remove_signal_handler", _remove_handler),
    ]


def _make_pipe(loop: Any) -> None:
    _real_pipe(loop)
    place = mine()
    if place is not None:
        place.sim.at_end.append(lambda: _close(loop))
        _bells[loop._selector] = bell = LaneLock()
        bell.quiet = True
        _silence(bell, None)


def _write(loop: Any) -> None:
    _real_write(loop)
    bell = _bells.get(loop._selector)
    if bell is not None and bell.locked():
        bell.release()


def _select(selector: Any, timeout: float | None = None) -> Any:
    bell = _bells.get(selector)
    if bell is None or mine() is None or len(selector.get_map()) > _OWN_PIPE:
        return _real_select(selector, timeout)
    ready = _real_select(selector, 0)
    if not ready and (timeout is None or timeout > 0):
        _silence(bell, timeout)
        ready = _real_select(selector, 0)
    return ready


def _add_handler(loop: Any, number: int, callback: Any, *args: Any) -> None:
    if mine() is None:
        _real_add(loop, number, callback, *args)


def _remove_handler(loop: Any, number: int) -> bool:
    return mine() is None and bool(_real_remove(loop, number))


def _close(loop: Any) -> None:
    """A loop that a program may have left open: its descriptors are the process's."""
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    if not loop.is_closed():
        loop._thread_id = None  # a thread that ran it is gone
        loop.close()


def _silence(bell: LaneLock, timeout: float | None) -> None:
    """Wait until the bell has been rung, or so many virtual seconds; nobody holds it."""
    if bell.acquire(timeout=-1 if timeout is None else timeout):
        bell.holder = None


__all__ = ["loop_names", "own_policy"]
