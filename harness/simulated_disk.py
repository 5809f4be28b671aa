"""A disk in memory, for systems that reach their files through an injected disk (`pread`, `pwrite`, …).

`SimulatedDisk` is one process's view of a tree (disk_tree.py): its descriptors, and the doors through
which its operations pass. An operation is, in this order: a scheduling point (`point`), an Operation
offered to the plan's faults (`interposer`; kinds `disk_open`, `disk_pwrite`, … with their arguments by
name), and its effect. `mounted` gives another process a view of the same tree. One thread at a time may
use a tree: workers are lanes.

Modelled: open flags, errno as Linux gives it, files that are unlinked or replaced while open, capacity,
relatime, alignment of direct I/O, durability (`durable` is the worst of weak POSIX, crash_states.py has
the states of any crash). Not modelled: see disk_tree.py; umask and modes; the order in which concurrent
parts of one operation land (each is whole).

What faults may add to an operation's arguments: `seconds` (sleep first); `limit` (bytes moved at most),
`flip` (a bit, counted from the first one moved), `stale` (read what was there before the last change);
`error` (an fsync's errno: what was pending is lost); `cut` (the file's new length when opened), `swapped`
(with the next file of that ending) and `gone` (a file or folder that is removed first).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import numpy

from harness.disk_files import FileStat, OpenFile, Profile, failure
from harness.disk_tree import O_DIRECTORY, LogEntry, Tree
from harness.errors import RankDied
from harness.interpose import DeadRank, Interposer, Operation

O_DIRECT = getattr(os, "O_DIRECT", 0o40000)
FIRST_DESCRIPTOR = 3
FOLDER_BYTES = 4096


class SimulatedDisk:
    """One process's disk.

    capacity: bytes of all files together. clock: seconds, for file times; by default a clock that only
    slow operations move. direct_block: what O_DIRECT wants offsets, lengths and addresses to be multiples
    of; 0 refuses O_DIRECT as tmpfs does, None checks nothing. point: called with kind and path before an
    operation; returns when it may happen. sleep: spends seconds. rank, size, lane: whose operations these
    are, for faults. on_death: called when a fault kills the rank at an operation. profile: what a crash
    may leave behind (harness/crash_log.py).
    """

    def __init__(
        self, *, capacity: int | None = None, clock: Callable[[], float] | None = None,
        direct_block: int | None = None, interposer: Interposer | None = None,
        point: Callable[[str, str], None] | None = None, sleep: Callable[[float], None] | None = None,
        rank: int = 0, size: int = 1, lane: Callable[[], int] | None = None,
        on_death: Callable[[], None] | None = None, tree: Tree | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.tree = Tree(capacity, clock) if tree is None else tree
        self.tree.profile = profile or self.tree.profile
        self.direct_block = direct_block
        self.rank = rank
        self.size = size
        self._interposer = interposer
        self._point = point
        self._sleep = sleep
        self._lane = lane
        self._on_death = on_death
        self._files: dict[int, OpenFile] = {}
        self._plain = interposer is None and point is None
        self.tree.remembers |= bool(interposer)

    def mounted(
        self, *, rank: int, size: int, interposer: Interposer | None = None,
        point: Callable[[str, str], None] | None = None, sleep: Callable[[float], None] | None = None,
        lane: Callable[[], int] | None = None, on_death: Callable[[], None] | None = None,
    ) -> SimulatedDisk:
        """The same disk for another process: its own descriptors, the same files."""
        return SimulatedDisk(
            direct_block=self.direct_block, interposer=interposer, point=point, sleep=sleep, rank=rank,
            size=size, lane=lane, on_death=on_death, tree=self.tree,
        )

    def durable(self) -> SimulatedDisk:
        """A new disk that holds only what is durable: the worst that a crash now may leave behind."""
        return SimulatedDisk(direct_block=self.direct_block, tree=self.tree.durable())

    @property
    def log(self) -> list[LogEntry]:
        """Every change and synchronisation of the tree so far, of all processes."""
        return self.tree.log

    def mark(self, kind: str, what: str, promise: str = "") -> None:
        """Note in the log that a call has begun, or is acknowledged: crash states tell the two apart."""
        self.log.append(LogEntry(kind, what, rank=self.rank, target=promise))

    def close_all(self) -> None:
        """The process is gone: its descriptors are closed."""
        for fd in list(self._files):
            self._close(fd)

    # The doors --------------------------------------------------------------------------------------

    def _offer(self, kind: str, body: Callable[..., Any], path: str, /, **args: Any) -> Any:
        """Point, faults, effect."""
        if self._point is not None:
            self._point(kind, path)
        if not self._interposer:
            return body(**args)
        if "fd" in args:
            args["file"] = self._files.get(args["fd"])
        elif kind == "disk_open":
            args["tree"] = self.tree

        def perform(
            file: OpenFile | None = None, tree: Tree | None = None, seconds: float = 0.0, **changed: Any
        ) -> Any:
            if seconds:
                self._spend(seconds)
            return body(**changed)

        lane = 0 if self._lane is None else self._lane()
        try:
            return self._interposer.perform(Operation(kind, self.rank, self.size, args, lane), perform)
        except RankDied:
            self._died()
            raise

    def _spend(self, seconds: float) -> None:
        if self._sleep is None:
            self.tree.slept += seconds
        else:
            self._sleep(seconds)

    def _died(self) -> None:
        if isinstance(self._interposer, DeadRank):
            return
        self._interposer, self._plain = DeadRank(), False
        self.close_all()
        if self._on_death is not None:
            self._on_death()

    def _path(self, fd: int) -> str:
        return self._files[fd].path if fd in self._files else ""

    def _file(self, fd: int) -> OpenFile:
        try:
            return self._files[fd]
        except KeyError:
            raise failure(errno.EBADF) from None

    # Descriptors ------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor, as os.open gives it; the lowest free number from 3 on."""
        if self._plain:
            return self._open(path, flags)
        existing = 0 if self._interposer is None else self.tree.existing(path, flags)
        return int(
            self._offer("disk_open", self._open, path, path=path, flags=flags, existing=existing)
        )

    def _open(
        self, path: str, flags: int, existing: int = 0, cut: int | None = None, gone: str = "", *,
        swapped: bool = False,
    ) -> int:
        if gone:
            self.tree.remove(gone, self.rank)
        if swapped:
            self.tree.swap(path, self.rank)
        access = flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
        direct = bool(flags & O_DIRECT)
        node = self.tree.opened(path, flags, self.rank)
        if node.is_dir and (access != os.O_RDONLY or flags & os.O_TRUNC):
            raise failure(errno.EISDIR, path)
        if not node.is_dir and flags & O_DIRECTORY:
            raise failure(errno.ENOTDIR, path)
        if direct and self.direct_block == 0:
            raise failure(errno.EINVAL, path)
        if flags & os.O_TRUNC and node.data:
            self.tree.truncate(node, path, 0, self.rank)
        if cut is not None and cut < len(node.data):
            self.tree.damage(node, path, cut, self.rank)
        fd = FIRST_DESCRIPTOR
        while fd in self._files:
            fd += 1
        node.opens += 1
        self._files[fd] = OpenFile(
            node, path, access != os.O_WRONLY, access != os.O_RDONLY, bool(flags & os.O_APPEND),
            (self.direct_block or 1) if direct else 1,
        )
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor; it is closed even where a fault makes this fail."""
        if self._plain:
            self._close(fd)
            return
        try:
            self._offer("disk_close", self._close, self._path(fd), fd=fd)
        except OSError:
            if fd in self._files:
                self._close(fd)
            raise

    def _close(self, fd: int) -> None:
        file = self._file(fd)
        del self._files[fd]
        file.node.opens -= 1
        if file.writable:
            self.log.append(LogEntry("close", file.path, 0, 0, file.node.number, self.rank))
        self.tree.let_go(file.node)

    def pread(self, fd: int, view: memoryview, offset: int) -> int:
        """Fill `view` from the file; returns the bytes read, fewer at its end."""
        if self._plain:
            return self._pread(fd, view, offset)
        return int(
            self._offer("disk_pread", self._pread, self._path(fd), fd=fd, view=view, offset=offset)
        )

    def _pread(
        self, fd: int, view: memoryview, offset: int, limit: int | None = None,
        flip: int | None = None, *, stale: bool = False,
    ) -> int:
        file = self._moving(fd, view, offset, "readable")
        if file.node.is_dir:
            raise failure(errno.EISDIR)
        target = view.cast("B")
        data = file.node.stale(offset, len(target)) if stale else file.node.data
        start = 0 if stale else offset
        count = max(min(len(target), len(data) - start), 0)
        if limit is not None:
            count = min(count, limit)
        with memoryview(data) as source:
            target[:count] = source[start : start + count]
        if flip is not None and count:
            target[flip // 8 % count] ^= 1 << flip % 8
        self.tree.touch(file.node)
        return count

    def _moving(self, fd: int, view: memoryview, offset: int, how: str) -> OpenFile:
        """The descriptor, if it may move `view` at `offset`."""
        if offset < 0:
            raise failure(errno.EINVAL)
        file = self._file(fd)
        if not getattr(file, how):
            raise failure(errno.EBADF)
        if file.unit > 1 and view.nbytes:
            address = int(numpy.frombuffer(view, numpy.uint8).__array_interface__["data"][0])
            if (offset | view.nbytes | address) % file.unit:
                raise failure(errno.EINVAL)
        return file

    def pwrite(self, fd: int, view: memoryview, offset: int) -> int:
        """Write `view` at `offset`; returns the bytes written, fewer where the disk fills up."""
        if self._plain:
            return self._pwrite(fd, view, offset)
        written = self._offer(
            "disk_pwrite", self._pwrite, self._path(fd), fd=fd, view=view, offset=offset
        )
        return view.nbytes if written is None else int(written)  # dropped: acknowledged all the same

    def _pwrite(
        self, fd: int, view: memoryview, offset: int, limit: int | None = None,
        flip: int | None = None,
    ) -> int:
        file = self._moving(fd, view, offset, "writable")
        chunk = bytes(view.cast("B")[:limit])
        if flip is not None and chunk:
            changed = bytearray(chunk)
            changed[flip // 8 % len(chunk)] ^= 1 << flip % 8
            chunk = bytes(changed)
        at = file.size if file.appends else offset
        return self.tree.write(file.node, file.path, at, chunk, self.rank)

    def fsync(self, fd: int) -> None:
        """Make the file's data and size durable (a folder's: the names in it)."""
        if self._plain:
            self._fsync(fd)
        else:
            self._offer("disk_fsync", self._fsync, self._path(fd), fd=fd)

    def _fsync(self, fd: int, error: int | None = None) -> None:
        file = self._file(fd)
        self.tree.fsync(file.node, file.path, self.rank, fails=error is not None)
        if error is not None:
            raise failure(error)

    def truncate(self, fd: int, length: int) -> None:
        """Set the file's size (ftruncate)."""
        if self._plain:
            self._truncate(fd, length)
        else:
            self._offer("disk_truncate", self._truncate, self._path(fd), fd=fd, length=length)

    def _truncate(self, fd: int, length: int) -> None:
        if length < 0:
            raise failure(errno.EINVAL)
        file = self._file(fd)
        if file.node.is_dir or not file.writable:
            raise failure(errno.EINVAL)
        self.tree.truncate(file.node, file.path, length, self.rank)

    # Paths ------------------------------------------------------------------------------------------

    def makedirs(self, path: str) -> None:
        """The folder and those above it, where they are missing."""
        self._named("disk_makedirs", self._makedirs, path)

    def _makedirs(self, path: str) -> None:
        self.tree.makedirs(path, self.rank)

    def fsync_dir(self, path: str) -> None:
        """Make the names in the folder durable."""
        self._named("disk_fsync_dir", self._fsync_dir, path)

    def _fsync_dir(self, path: str, error: int | None = None) -> None:
        node = self.tree.find(path)
        if not node.is_dir:
            raise failure(errno.ENOTDIR, path)
        self.tree.fsync(node, path, self.rank, fails=error is not None)
        if error is not None:
            raise failure(error)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, in place of what is called `new` (os.replace)."""
        if self._plain:
            self._rename(old, new)
        else:
            self._offer("disk_rename", self._rename, old, old=old, new=new)

    def _rename(self, old: str, new: str, gone: str = "") -> None:
        if gone:
            self.tree.remove(gone, self.rank)
        self.tree.rename(old, new, self.rank)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self._named("disk_unlink", self._unlink, path)

    def _unlink(self, path: str) -> None:
        self.tree.unlink(path, self.rank)

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        return list(self._named("disk_listdir", self._listdir, path))

    def _listdir(self, path: str) -> list[str]:
        node = self.tree.find(path)
        if not node.is_dir:
            raise failure(errno.ENOTDIR, path)
        return sorted(node.entries)

    def exists(self, path: str) -> bool:
        """Whether anything has that name; errors other than ENOENT are raised."""
        return bool(self._named("disk_exists", self._exists, path))

    def _exists(self, path: str) -> bool:
        try:
            self.tree.find(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: str) -> Any:
        """A FileStat: size, mtime, atime, is_dir. (Any: ports name a type of their own for it.)"""
        return self._named("disk_stat", self._stat, path)

    def _stat(self, path: str) -> FileStat:
        node = self.tree.find(path)
        size = FOLDER_BYTES if node.is_dir else len(node.data)
        return FileStat(size, node.mtime, node.atime, node.is_dir)

    def utime(self, path: str, when: float) -> None:
        """Set both times of a file."""
        if self._plain:
            self._utime(path, when)
        else:
            self._offer("disk_utime", self._utime, path, path=path, when=when)

    def _utime(self, path: str, when: float) -> None:
        node = self.tree.find(path)
        node.mtime = node.atime = when
        self.log.append(LogEntry("utime", path, 0, 0, node.number, self.rank))

    def free_bytes(self, path: str) -> int:
        """Bytes that still fit; 2**62 on a disk without capacity."""
        return int(self._named("disk_free_bytes", self._free_bytes, path))

    def _free_bytes(self, path: str) -> int:
        self.tree.find(path)
        room = self.tree.room()
        return 1 << 62 if room is None else room

    def _named(self, kind: str, body: Callable[[str], Any], path: str) -> Any:
        return body(path) if self._plain else self._offer(kind, body, path, path=path)


__all__ = ["O_DIRECT", "FileStat", "LogEntry", "OpenFile", "SimulatedDisk"]
