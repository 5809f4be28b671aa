"""The one door for time and randomness.

`now` is the only real clock (time limits, plans a second); `generator` the only source of
pseudo-random numbers outside Hypothesis. During a run the programs see neither: `Ambient` gives them
virtual time, refuses threads, and keeps `random`, `numpy.random` and torch's default CPU generator
as they were.

Randomness by rank is paid for only when used: a run first goes without; if a generator's state
differs afterwards the program draws random numbers, and the caller repeats the run with
`swapping=True`, where every lane has its own seeded generators. Either way the states are restored.
Not modelled: numpy Generators and `random.Random` objects of the program's own (they are as
deterministic as their seeds), CUDA generators, code that bound `time.sleep` before the run.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch

from harness.errors import ThreadStarted

_MT19937_BYTES = 624 * 4 + 4
_numpy_state = numpy.random.mtrand._rand._bit_generator  # type: ignore[attr-defined]
_numpy_address: int = _numpy_state.ctypes.state_address


_real_monotonic = time.monotonic
_real_sleep = time.sleep


def now() -> float:
    """Seconds on a monotonic real clock."""
    return _real_monotonic()


def nap(seconds: float) -> None:
    """Sleep on the real clock."""
    _real_sleep(seconds)


def generator(*seed: object) -> random.Random:
    """A generator whose stream follows from `seed` alone (any printable values)."""
    return random.Random(":".join(str(part) for part in seed))


def fresh_seed() -> int:
    """A root seed nobody chose: 48 bits from the operating system."""
    return random.SystemRandom().getrandbits(48)


def _capture() -> tuple[Any, bytes, torch.Tensor]:
    return (
        random.getstate(),
        ctypes.string_at(_numpy_address, _MT19937_BYTES),
        torch.default_generator.get_state(),
    )


def _restore(state: tuple[Any, bytes, torch.Tensor]) -> None:
    random.setstate(state[0])
    ctypes.memmove(_numpy_address, state[1], _MT19937_BYTES)
    torch.default_generator.set_state(state[2])


def _seeded(rank: int) -> tuple[Any, bytes, torch.Tensor]:
    """Generator states for one rank, the same in every run and process."""
    held = _capture()
    random.seed(rank)
    numpy.random.seed(rank)
    torch.manual_seed(rank)
    made = _capture()
    _restore(held)
    return made


def _no_thread(self: threading.Thread) -> None:
    raise ThreadStarted(
        f"thread {self.name!r} was started inside a simulated rank: threads are scheduled by the "
        "operating system, so the run would not replay; use a lane, or the processes fabric"
    )


class Ambient:
    """Virtual time, no threads and private generators while a simulated run lasts.

    sleep: called with seconds when the program sleeps. clock: virtual seconds.
    """

    def __init__(
        self, sleep: Callable[[float], None], clock: Callable[[], float], swapping: bool
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self.swapping = swapping
        self.drew = False
        self._by_lane: dict[int, tuple[Any, bytes, torch.Tensor]] = {}

    def __enter__(self) -> Ambient:
        self._patched = (
            time.sleep, time.time, time.monotonic, time.perf_counter, threading.Thread.start
        )
        self._grad = torch.is_grad_enabled()
        self._before = _capture()
        time.sleep = self._sleep
        time.time = time.monotonic = time.perf_counter = self._clock
        threading.Thread.start = _no_thread  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        (
            time.sleep, time.time, time.monotonic, time.perf_counter, start
        ) = self._patched
        threading.Thread.start = start  # type: ignore[method-assign]
        if torch.is_grad_enabled() != self._grad:
            torch.set_grad_enabled(self._grad)
        after = _capture()
        before = self._before
        self.drew = (
            after[0] != before[0]
            or after[1] != before[1]
            or not torch.equal(after[2], before[2])
        )
        if self.drew or self.swapping:
            _restore(before)

    def leave(self, lane: int) -> None:
        """Keep the generators of a lane that is switched away from (swapping mode only)."""
        self._by_lane[lane] = _capture()

    def enter(self, lane: int) -> None:
        """Install the generators of the lane that is switched to (swapping mode only)."""
        state = self._by_lane.get(lane)
        _restore(state if state is not None else _seeded(lane))
