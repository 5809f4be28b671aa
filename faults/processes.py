"""What the operating system does to a rank's real process. On the processes fabric only.

Each happens in the rank's own process, just before its nth operation of any kind, by the system call that
really does it. A process that is ended takes what it had put in flight with it; what it printed, its exit
code or signal, and the stack that its faulthandler leaves stand in the record. The others see what they
would see of any dead rank: a lane that waits for what only it could do gets PeerLost.

A correct system survives these or fails cleanly. The process is replaced before the next plan.
Not modelled: a machine that fails, several processes that are hit at once, limits by cgroup (they need
root): slowness is made by stopping and continuing the process, which needs nobody's leave.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import msgspec

from faults.operations import HOST
from harness import EVERY, Fault, Operation, Strike

MEBIBYTE = 1 << 20
CLOCK_SECONDS = 3600.0


class _ProcessFault(Fault, frozen=True):
    """Base: matches every operation of a rank program."""

    family: ClassVar[Literal["environment", "bug"]] = "environment"
    everywhere: ClassVar[bool] = False
    fabrics: ClassVar[tuple[str, ...]] = ("processes", "torchrun")

    def matches(self, op: Operation) -> bool:
        """Every call of the rank program; the world never hits all ranks at once."""
        return op.kind not in HOST and self.rank != EVERY

    def rewrite(self, op: Operation) -> Strike:
        """Hit the process, then perform the operation."""
        return Strike(self.deed())

    def deed(self) -> Callable[[], None]:
        """What is done in the process."""
        raise NotImplementedError


class Killed(_ProcessFault, frozen=True, tag="killed"):
    """The rank's process gets SIGKILL, as from an out-of-memory killer."""

    def deed(self) -> Callable[[], None]:
        """Send it."""
        return lambda: os.kill(os.getpid(), signal.SIGKILL)


class NativeAbort(_ProcessFault, frozen=True, tag="native_abort"):
    """Native code of the rank's process calls abort(), as gloo does on a size that does not fit."""

    def deed(self) -> Callable[[], None]:
        """Call it."""
        return lambda: ctypes.CDLL(None).abort()


class Exits(_ProcessFault, frozen=True, tag="exits"):
    """The rank's process ends with an exit code, its program unfinished; 0: it leaves early."""

    code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1

    def deed(self) -> Callable[[], None]:
        """End it, without any handler."""
        return lambda: os._exit(self.code)


class NeverStarts(_ProcessFault, frozen=True, tag="never_starts"):
    """The rank's process is gone before its program begins."""

    starts: ClassVar[bool] = True
    code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1

    def matches(self, op: Operation) -> bool:
        """No operation: it is hit before the first."""
        return False

    def deed(self) -> Callable[[], None]:
        """End it."""
        return lambda: os._exit(self.code)


class Stopped(_ProcessFault, frozen=True, tag="stopped"):
    """The rank's process is stopped (SIGSTOP) and continued (SIGCONT) after a while."""

    milliseconds: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 50

    def deed(self) -> Callable[[], None]:
        """Have a process of its own stop and continue it."""

        def stop() -> None:
            own, waker = os.getpid(), os.fork()
            if not waker:  # it stops as well, so that it cannot continue what has yet to stop
                os.kill(own, signal.SIGSTOP)
                _nap(self.milliseconds / 1000)
                os.kill(own, signal.SIGCONT)
                os._exit(0)
            os.waitpid(waker, 0)

        return stop


class Slowed(_ProcessFault, frozen=True, tag="slowed"):
    """The rank's process gets only some percent of the time, in turns of 10 ms, for a while."""

    percent: Annotated[int, msgspec.Meta(ge=1, le=99)] = 10
    milliseconds: Annotated[int, msgspec.Meta(ge=10, le=5000)] = 1000

    def deed(self) -> Callable[[], None]:
        """Have a process of its own stop and continue it, and be nice to everybody."""

        def slow() -> None:
            own = os.getpid()
            if os.fork():
                os.nice(10)
                return
            signal.setitimer(signal.ITIMER_REAL, CLOCK_SECONDS)
            stopped = (100 - self.percent) / 10_000
            while _elapsed() * 1000 < self.milliseconds:
                os.kill(own, signal.SIGSTOP)
                _nap(stopped)
                os.kill(own, signal.SIGCONT)
                began = _elapsed()
                _nap(self.percent / 10_000)
                # However late this process woke up: the share is kept.
                stopped = (_elapsed() - began) * (100 - self.percent) / self.percent
                stopped = min(stopped, max(self.milliseconds / 1000 - _elapsed(), 0.0))
            os._exit(0)

        return slow


class MemoryLimit(_ProcessFault, frozen=True, tag="memory_limit"):
    """The rank's process may take only so many mebibytes of memory more (RLIMIT_AS)."""

    mebibytes: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 16

    def deed(self) -> Callable[[], None]:
        """Set the limit a little above what it has."""

        def limit() -> None:
            with open("/proc/self/statm") as file:
                held = int(file.read().split()[0]) * resource.getpagesize()
            _limit(resource.RLIMIT_AS, held + self.mebibytes * MEBIBYTE)

        return limit


class OpenFilesLimit(_ProcessFault, frozen=True, tag="open_files_limit"):
    """The rank's process may open only so many files more (RLIMIT_NOFILE): then EMFILE."""

    files: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0

    def deed(self) -> Callable[[], None]:
        """Set the limit so that as many descriptors below it are free."""

        def limit() -> None:
            used = {int(name) for name in os.listdir("/proc/self/fd")}
            most, free = 0, self.files
            while free or most in used:
                free -= most not in used
                most += 1
            _limit(resource.RLIMIT_NOFILE, most)

        return limit


class FileSizeLimit(_ProcessFault, frozen=True, tag="file_size_limit"):
    """No file that the rank's process writes may grow beyond so many bytes (RLIMIT_FSIZE)."""

    nbytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 30)] = 4096

    def deed(self) -> Callable[[], None]:
        """Set the limit, and have writes fail with EFBIG instead of a signal."""

        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            _limit(resource.RLIMIT_FSIZE, self.nbytes)

        return limit


def _elapsed() -> float:
    """Seconds since the timer of CLOCK_SECONDS was set: a fine clock that is not the run's."""
    return CLOCK_SECONDS - signal.getitimer(signal.ITIMER_REAL)[0]


def _nap(seconds: float) -> None:
    """Sleep, without the clock of the run."""
    select.select([], [], [], seconds)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))
