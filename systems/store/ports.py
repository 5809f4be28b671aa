"""What the store needs from the world: a disk, workers and a clock, as small protocols.

The real ones (systems.store.real) are thin; a simulated world gives its own. Errors of a disk are
`OSError` with errno, as the operating system gives them. Locks are no port: the store never holds
one across an operation of a port, so under workers that take turns there is nothing to contend for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class FileStat:
    """What the store asks about a file: bytes, and seconds since the epoch."""

    size: int
    mtime: float
    atime: float
    is_dir: bool


class Disk(Protocol):
    """A file system. Paths are absolute; descriptors are this disk's own numbers."""

    def makedirs(self, path: str) -> None:
        """Make the folder and those above it; there already is fine."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Like `os.open`."""

    def close(self, fd: int) -> None:
        """Like `os.close`."""

    def pread(self, fd: int, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`; may be short. Returns the bytes read, 0 at the end."""

    def pwrite(self, fd: int, view: memoryview, offset: int) -> int:
        """Write `view` at `offset`; may be short. Returns the bytes written."""

    def fsync(self, fd: int) -> None:
        """Make the file's data durable."""

    def fsync_dir(self, path: str) -> None:
        """Make the folder's entries durable."""

    def truncate(self, fd: int, length: int) -> None:
        """Cut or extend the file to `length` bytes."""

    def rename(self, old: str, new: str) -> None:
        """Give the file its new name at once, replacing what had it."""

    def unlink(self, path: str) -> None:
        """Remove the name."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder."""

    def exists(self, path: str) -> bool:
        """Whether the path is there; errors other than "not there" are raised."""

    def stat(self, path: str) -> FileStat:
        """Size and times."""

    def utime(self, path: str, when: float) -> None:
        """Set both times to `when`, in seconds since the epoch."""

    def free_bytes(self, path: str) -> int:
        """Bytes that may still be written on the file system that holds `path`."""


class Event(Protocol):
    """Set once; waited for by anyone."""

    def set(self) -> None:
        """Let every waiter go."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until set, `timeout` seconds at most (None: without limit); whether it is set."""

    def is_set(self) -> bool:
        """Whether it is set."""


class Executor(Protocol):
    """Workers."""

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` some time, on some worker; a job never raises."""

    def close(self) -> None:
        """Wait for what was submitted, and take no more."""

    def event(self) -> Event:
        """Something the store can wait on."""


class Clock(Protocol):
    """Two clocks."""

    def now(self) -> float:
        """Seconds, monotonic."""

    def time(self) -> float:
        """Seconds since the epoch, as file times are."""
