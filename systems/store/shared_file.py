"""A file in shared memory and locks on its byte ranges: the mechanism under the shared pool.

Locks are Linux's open-file-description locks. Each `Handle` is a description of its own, so threads and
processes exclude each other alike, and the kernel lets go of all locks of a process that dies, however
it dies. A lock is the only reference there is to what it stands for: nothing has to be counted, and
nothing is left of a dead holder. Not modelled: a holder that is stopped for ever; a forked child keeps
its parent's locks until it closes the descriptors or ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
from collections import deque

from systems.store.errors import StorageUnusable

FOLDER = "/dev/shm"
_FLOCK = struct.Struct("hhqqi4x")
_BUSY = (errno.EAGAIN, errno.EACCES)


class Handle:
    """One description of the file: what one load or dump locks with."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def share(self, at: int, *, wait: bool = True) -> bool:
        """Hold byte `at` together with other sharers; whether it is held. Replaces what it held of it."""
        return self._set(fcntl.F_RDLCK, at, wait=wait)

    def own(self, at: int, *, wait: bool = True) -> bool:
        """Hold byte `at` alone; whether it is held."""
        return self._set(fcntl.F_WRLCK, at, wait=wait)

    def release(self, at: int) -> None:
        """Let go of byte `at`."""
        self._set(fcntl.F_UNLCK, at, wait=False)

    def _set(self, kind: int, at: int, *, wait: bool) -> bool:
        what = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        try:
            fcntl.fcntl(self.fd, what, _FLOCK.pack(kind, os.SEEK_SET, at, 1, 0))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True


class SharedFile:
    """The file of one name, mapped; new for whoever finds nobody attached."""

    SETUP, ATTACHED = 0, 1  # bytes: who sets up or leaves; who is there

    def __init__(self, name: str) -> None:
        self.path = f"{FOLDER}/rankfault-kv-{name}"
        self._handle = self._opened()
        self._free: deque[Handle] = deque()
        self._closed = False

    def _opened(self) -> Handle:
        """The file under its name, with the set-up locked; what killed users left is not used again.

        A file is never cut: a mapping of it that somebody still has would end under his hands.
        """
        while True:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                handle = Handle(os.open(self.path, flags, 0o600))
            except OSError as error:
                number = error.errno or errno.EIO
                raise StorageUnusable(
                    f"cache_shared: {self.path} cannot be opened ({errno.errorcode.get(number, number)}:"
                    f" {os.strerror(number)})", number
                ) from error  # fmt: skip
            handle.own(self.SETUP)
            found = os.fstat(handle.fd)
            left = found.st_size and handle.own(self.ATTACHED, wait=False)
            if found.st_nlink and not left:
                return handle
            if found.st_nlink:
                os.unlink(self.path)
            os.close(handle.fd)

    def forget(self, handle: Handle) -> None:
        """With whatever locks it has."""
        os.close(handle.fd)

    def alone(self) -> bool:
        """Whether nobody else is attached; the set-up is locked."""
        return self._handle.own(self.ATTACHED, wait=False)

    def make(self, size: int) -> None:
        """Give the new file `size` bytes of zeros, all of which are there."""
        try:
            os.posix_fallocate(self._handle.fd, 0, size)
        except OSError as error:
            self.abandon()
            number = error.errno or errno.EIO
            raise StorageUnusable(
                f"cache_shared: {FOLDER} has no room for {size} bytes"
                f" ({errno.errorcode.get(number, number)}: {os.strerror(number)});"
                " allowed: a smaller cache_bytes", number
            ) from error  # fmt: skip

    def mapped(self) -> mmap.mmap:
        """All of the file."""
        return mmap.mmap(self._handle.fd, 0)

    def attach(self) -> None:
        """The set-up is done: others may come, and know that somebody is there."""
        self._handle.share(self.ATTACHED)
        self._handle.release(self.SETUP)

    def abandon(self) -> None:
        """Leave during the set-up; a file that nobody else uses goes."""
        if self.alone():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        for at in (self.ATTACHED, self.SETUP):  # closing alone does not: a mapping has its own descriptor
            self._handle.release(at)
        os.close(self._handle.fd)

    def lend(self) -> Handle:
        """A handle that nobody else uses."""
        try:
            return self._free.pop()
        except IndexError:
            return Handle(os.open(f"/proc/self/fd/{self._handle.fd}", os.O_RDWR | os.O_CLOEXEC))

    def give_back(self, handle: Handle) -> None:
        """Its locks are released."""
        if self._closed:
            os.close(handle.fd)
        else:
            self._free.append(handle)

    def close(self) -> None:
        """Leave; the last one removes the file. Twice is fine."""
        if self._closed:
            return
        self._closed = True
        while self._free:
            os.close(self._free.pop().fd)
        self._handle.own(self.SETUP)
        self.abandon()
