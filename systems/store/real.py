"""The real ports: the operating system's files, threads, its clocks; and the store's lock.

Thin on purpose: nothing here decides anything. `Threads` starts a worker only when a job finds none
idle. The workers are daemons, so that I/O which never ends does not keep the process alive.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from systems.store.ports import Event, FileStat

Lock = threading.Lock
"""Guards the store's tables; never held across an operation of a port."""


class RealDisk:
    """The operating system's files."""

    def makedirs(self, path: str) -> None:
        """Make the folder and those above it."""
        os.makedirs(path, exist_ok=True)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Open a file."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def pread(self, fd: int, view: memoryview, offset: int) -> int:
        """Read into `view`."""
        return os.preadv(fd, [view], offset)

    def pwrite(self, fd: int, view: memoryview, offset: int) -> int:
        """Write from `view`."""
        return os.pwritev(fd, [view], offset)

    def fsync(self, fd: int) -> None:
        """Make a file durable."""
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        """Make a folder's entries durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: int, length: int) -> None:
        """Cut or extend a file."""
        os.ftruncate(fd, length)

    def rename(self, old: str, new: str) -> None:
        """Replace atomically."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        """Names in a folder."""
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        """Whether the path is there."""
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: str) -> FileStat:
        """Size and times."""
        found = os.stat(path)
        is_dir = (found.st_mode & 0o170000) == 0o040000
        return FileStat(found.st_size, found.st_mtime, found.st_atime, is_dir)

    def utime(self, path: str, when: float) -> None:
        """Set both times."""
        os.utime(path, (when, when))

    def free_bytes(self, path: str) -> int:
        """Bytes this user may still write."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


class RealEvent:
    """A `threading.Event` with the port's signature."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Let every waiter go."""
        self._event.set()

    def wait(self, timeout: float | None) -> bool:
        """Wait until set."""
        return self._event.wait(timeout)

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._event.is_set()


_Jobs = SimpleQueue[Callable[[], None] | None]


def _work(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # holds tensors; the next may be long in coming


def _dismiss(jobs: _Jobs, workers: int) -> None:
    for _ in range(workers):
        jobs.put(None)


class Threads:
    """At most `workers` daemon threads over one queue."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._jobs: _Jobs = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = Lock()
        self._closed = False
        self._forgotten = weakref.finalize(self, _dismiss, self._jobs, workers)

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job; starts a further worker while there are fewer than allowed."""
        with self._lock:
            if self._closed:
                raise RuntimeError("these workers are closed")
            self._jobs.put(job)
            if len(self._threads) < self._workers:
                name = f"store-worker-{len(self._threads)}"
                thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Wait for what was submitted."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._forgotten()
            for thread in self._threads:
                thread.join()

    def event(self) -> Event:
        """Something to wait on."""
        return RealEvent()


class RealClock:
    """The operating system's clocks."""

    def now(self) -> float:
        """Seconds, monotonic."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()
