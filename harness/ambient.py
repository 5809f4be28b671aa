"""The one door for time and randomness.

`now` is the only real clock (time limits, plans a second); `generator` the only source of
pseudo-random numbers outside Hypothesis. During a run the programs see neither: `Ambient` gives them
virtual time, refuses threads (those of a torch.distributed script are lanes: rank_threads.py there), and
keeps `random`, `numpy.random` and torch's default CPU generator as they were.

Randomness by rank is paid for only when used: a run first goes without; if a generator's state
differs afterwards the program draws random numbers, and the caller repeats the run with
`swapping=True`, where every lane has its own seeded generators. Either way the states are restored.
Not modelled: numpy Generators and `random.Random` objects of the program's own (they are as
deterministic as their seeds), CUDA generators, code that bound `time.sleep` before the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

from harness.errors import ThreadStarted

_MT19937_BYTES = 624 * 4 + 4
_numpy_state = numpy.random.mtrand._rand._bit_generator
_numpy_address: int = _numpy_state.ctypes.state_address


_real_monotonic = time.monotonic
_real_sleep = time.sleep
_real_time = time.time
_THREADS = "/proc/self/task"


def now() -> float:
    """Seconds on a monotonic real clock."""
    return _real_monotonic()


def today() -> float:
    """Seconds since the epoch: to compare with what files say of their last change, with nothing else."""
    return _real_time()


def nap(seconds: float) -> None:
    """Sleep on the real clock."""
    _real_sleep(seconds)


def processor_waits() -> dict[int, float]:
    """Seconds that each thread of this process has waited for a processor, by its number for the kernel;
    {} where the kernel does not count them (proc_pid_schedstat(5))."""
    waits = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir(_THREADS):
            with contextlib.suppress(OSError, ValueError), open(f"{_THREADS}/{thread}/schedstat") as file:
                waits[int(thread)] = int(file.read().split()[1]) / 1e9
    return waits


def generator(*seed: object) -> random.Random:
    """A generator whose stream follows from `seed` alone (any printable values)."""
    return random.Random(":".join(str(part) for part in seed))


def fresh_seed() -> int:
    """A root seed nobody chose: 48 bits from the operating system."""
    return random.SystemRandom().getrandbits(48)


class _MersenneState(ctypes.Structure):
    """What CPython's RandomObject holds behind its object header (Modules/_randommodule.c)."""

    _fields_ = (("index", ctypes.c_int), ("key", ctypes.c_uint32 * 624))


def _python_address() -> int | None:
    """Where the state of `random`'s generator lies, if this interpreter keeps it where 3.11 does."""
    inst = random._inst
    address = id(inst) + object.__basicsize__
    held = _MersenneState.from_address(address)
    if (*held.key, held.index) == random.getstate()[1]:
        return address
    return None


_python_state = _python_address()


def _python_bytes() -> Any:
    """A value that changes when `random`'s generator is used; getstate costs thirty times more."""
    if _python_state is None:
        return random.getstate()
    return ctypes.string_at(_python_state, ctypes.sizeof(_MersenneState))


def _bytes(state: torch.Tensor) -> bytes:
    """A generator's state as bytes; torch.equal costs ten times more."""
    return ctypes.string_at(state.data_ptr(), state.numel())  # uint8, dense, on the CPU


_Peek = tuple[Any, bytes, torch.Tensor, Any]


def _peek() -> _Peek:
    """The three generators' states, cheaply: comparable; `_put_back` can restore from it."""
    return (
        _python_bytes(),
        ctypes.string_at(_numpy_address, _MT19937_BYTES),
        torch.default_generator.get_state(),
        random._inst.gauss_next,  # type: ignore[attr-defined]
    )


def _put_back(state: _Peek) -> None:
    """Restore what `_peek` saw. A cached Gaussian of numpy's legacy generator is dropped."""
    random._inst.gauss_next = state[3]  # type: ignore[attr-defined]
    if _python_state is None:
        random.setstate(state[0])
    else:
        ctypes.memmove(_python_state, state[0], ctypes.sizeof(_MersenneState))
    key = numpy.frombuffer(state[1], dtype=numpy.uint32, count=624)
    position = int.from_bytes(state[1][-4:], sys.byteorder)
    numpy.random.set_state(("MT19937", key, position, 0, 0.0))
    torch.default_generator.set_state(state[2])


_Full = tuple[Any, Any, torch.Tensor]


def _capture() -> _Full:
    """The three generators' whole states, cached Gaussians included."""
    return random.getstate(), numpy.random.get_state(), torch.default_generator.get_state()


def _restore(state: _Full) -> None:
    random.setstate(state[0])
    numpy.random.set_state(state[1])
    torch.default_generator.set_state(state[2])


@functools.cache
def _seeded(rank: int) -> _Full:
    """Generator states for one rank, the same in every run and process."""
    held = _capture()
    random.seed(rank)
    numpy.random.seed(rank)
    torch.default_generator.manual_seed(rank)  # torch.manual_seed would reseed the GPUs as well
    made = _capture()
    _restore(held)
    return made


@contextlib.contextmanager
def same_numbers() -> Iterator[None]:
    """The three generators begin as rank 0's do in every run, and are as they were afterwards."""
    held = _capture()
    _restore(_seeded(0))
    try:
        yield
    finally:
        _restore(held)


_active: Ambient | None = None
_NAMES = (
    "sleep", "time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns",
)
_real_start = threading.Thread.start


def _door() -> Any:
    """Where threads begin; a rank whose threads are lanes has one of its own there."""
    return getattr(threading, "_start_new_thread", None)


_real_door = _door()


_lanes: set[int] = set()  # threads that carry lanes (fabric/threads.py)


def joins_runs() -> None:
    """The calling thread carries lanes from now on: a run that is on is its own."""
    _lanes.add(threading.get_ident())


def start_thread(thread: threading.Thread) -> None:
    """Start one of the harness's own threads, also during a run."""
    _real_start(thread)


def _inside() -> Ambient | None:
    """The run that the calling thread is in; other threads of the process keep the real world."""
    ambient = _active
    if ambient is None:
        return None
    ident = threading.get_ident()
    return ambient if ambient.thread == ident or ident in _lanes else None


def _virtual(name: str) -> Callable[..., Any]:
    """What stands for `time.<name>` during a run."""
    real = getattr(time, name)

    def sleep(seconds: float) -> None:
        ambient = _inside()
        if ambient is None:
            real(seconds)
        else:
            ambient.sleep(seconds)

    def read() -> float:
        ambient = _inside()
        return float(real()) if ambient is None else ambient.clock()

    def read_ns() -> int:
        ambient = _inside()
        return int(real()) if ambient is None else round(ambient.clock() * 1e9)

    return sleep if name == "sleep" else read_ns if name.endswith("_ns") else read


VIRTUAL = {name: _virtual(name) for name in _NAMES}


def _start(self: threading.Thread) -> None:
    if _inside() is None or _door() is not _real_door:
        _real_start(self)
        return
    raise ThreadStarted(
        f"thread {self.name!r} was started inside a simulated run: threads are scheduled by the "
        "operating system, so the run would not replay; do without it, use a lane, or run the program on "
        "real processes"
    )


class Ambient:
    """Virtual time, no threads and private generators while a simulated run lasts.

    sleep: called with seconds when the program sleeps. clock: virtual seconds. real: private
    generators only; time and threads are the machine's.
    """

    def __init__(
        self, sleep: Callable[[float], None], clock: Callable[[], float], *, swapping: bool,
        real: bool = False,
    ) -> None:
        self.sleep = sleep
        self._real = real
        self.clock = clock
        self.thread = 0
        self.swapping = swapping
        self.drew = False
        self._by_lane: dict[int, _Full] = {}
        self._whole: _Full | None = None

    def __enter__(self) -> Ambient:
        global _active
        self._patched = {name: getattr(time, name) for name in _NAMES}
        self._start = threading.Thread.start
        self._grad = torch.is_grad_enabled()
        self._before = _peek()
        self._whole = _capture() if self.swapping else None
        self.thread = threading.get_ident()
        if not self._real:
            _active = self
            vars(time).update(VIRTUAL)
            threading.Thread.start = _start  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        global _active
        vars(time).update(self._patched)
        threading.Thread.start = self._start  # type: ignore[method-assign]
        _active = None
        if torch.is_grad_enabled() != self._grad:
            torch.set_grad_enabled(self._grad)
        after = _peek()
        before = self._before
        self.drew = (
            after[0] != before[0]
            or after[1] != before[1]
            or after[3] != before[3]
            or _bytes(after[2]) != _bytes(before[2])
        )
        if self._whole is not None:
            _restore(self._whole)
        elif self.drew:
            _put_back(before)

    def leave(self, lane: int) -> None:
        """Keep the generators of a lane that is switched away from (swapping mode only)."""
        self._by_lane[lane] = _capture()

    def enter(self, lane: int) -> None:
        """Install the generators of the lane that is switched to (swapping mode only)."""
        state = self._by_lane.get(lane)
        _restore(state if state is not None else _seeded(lane))
