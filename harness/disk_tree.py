"""The tree behind the simulated disk: names, contents, and which of both are durable.

Every file holds two contents: what reads see (`data`), and the pristine image of what survives a crash
(`durable`), with the writes and truncations between the two (`pending`). Every folder holds two tables
of names in the same way. Durability is the weak POSIX profile: fsync of a file makes its data and size
durable, not its name; fsync of a folder makes the names in it durable, not the folder's own name in its
parent, nor the contents of its files. Nothing else is durable.

`log` is every operation that changes or synchronises something, in order, with what it wrote: enough to
build any crash state. A failed fsync drops the pending changes without making them durable, as Linux
does: a later fsync succeeds all the same.

Not modelled: links, symbolic links, permissions, sparse files (a hole takes space), folders that take
space. Errors carry the errno that Linux gives.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import NamedTuple

from harness.disk_files import EMPTY, Image, Inode, Profile, apply, failure

NAME_MAX = 255
DAY = 86_400.0
O_DIRECTORY = getattr(os, "O_DIRECTORY", 0o200000)


class LogEntry(NamedTuple):
    """One operation that changed or synchronised something.

    kind: mkdir, create, write, truncate, close, fsync, failed_fsync, fsync_dir, rename, unlink, utime,
    damage, or a mark. length: bytes written, or the new size. inode tells files apart whatever they are
    called; data is what was written; target is a rename's new name, or a mark's promise.
    """

    kind: str
    path: str
    offset: int = 0
    length: int = 0
    inode: int = 0
    rank: int = 0
    target: str = ""
    data: bytes = b""

    def shown(self) -> str:
        """In one line."""
        more = {"rename": f" to {self.target}", "write": f" ({self.length} bytes at {self.offset})"}
        return f"{self.kind} {self.path}{more.get(self.kind, '')}"


@functools.lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    """The components of a path; a slash at its end counts as `.`."""
    if "\0" in path:
        raise ValueError("embedded null byte")
    if not path:
        raise failure(errno.ENOENT, path)
    parts = [part for part in path.split("/") if part]
    return (*parts, ".") if path.endswith("/") else tuple(parts)


class Tree:
    """Names and contents. `remembers`: whether files keep what a stale read shows. `base`: what was there
    before the log begins; `profile`: which of several crash states are allowed."""

    def __init__(self, capacity: int | None, clock: Callable[[], float] | None) -> None:
        self.base: Image = EMPTY
        self.profile: Profile = "posix"
        self.capacity = capacity
        self.clock = clock
        self.slept = 0.0  # by slow operations that nobody else sleeps for
        self.used = 0
        self.log: list[LogEntry] = []
        self.remembers = False
        self._inodes = 0
        self.root = self._inode(is_dir=True)
        self.root.links = 1

    def _inode(self, *, is_dir: bool) -> Inode:
        self._inodes += 1
        return Inode(self._inodes, self.now(), is_dir=is_dir)

    def now(self) -> float:
        """Seconds for file times: the clock, if there is one, and what slow operations spent."""
        return self.slept if self.clock is None else self.clock() + self.slept

    # Names ----------------------------------------------------------------------------------------

    @staticmethod
    def lookup(folder: Inode, name: str, path: str) -> Inode | None:
        """What is called `name` in a folder. Raises ENAMETOOLONG, naming the whole path."""
        found = folder.entries.get(name)
        if found is None and len(name) > NAME_MAX // 4 and len(os.fsencode(name)) > NAME_MAX:
            raise failure(errno.ENAMETOOLONG, path)
        return found

    def _walk(self, parts: tuple[str, ...], path: str) -> list[Inode]:
        trail = [self.root]
        for part in parts:
            node = trail[-1]
            if not node.is_dir:
                raise failure(errno.ENOTDIR, path)
            if part == "..":
                del trail[max(len(trail) - 1, 1) :]
            elif part != ".":
                child = self.lookup(node, part, path)
                if child is None:
                    raise failure(errno.ENOENT, path)
                trail.append(child)
        return trail

    def find(self, path: str) -> Inode:
        """What `path` names. Raises ENOENT, ENOTDIR or ENAMETOOLONG."""
        return self._walk(_parts(path), path)[-1]

    def parent(self, path: str) -> tuple[list[Inode], str, bool]:
        """The folders down to the one that holds `path`'s last name, that name, a slash behind it.

        The name is empty where the path ends in the root, `.` or `..`.
        """
        parts = _parts(path)
        slash = path.endswith("/")
        if slash:
            parts = parts[:-1]
        if not parts or parts[-1] in (".", ".."):
            return self._walk(parts, path), "", slash
        trail = self._walk(parts[:-1], path)
        if not trail[-1].is_dir:
            raise failure(errno.ENOTDIR, path)
        return trail, parts[-1], slash

    def _enter(self, folder: Inode, name: str, node: Inode) -> None:
        folder.entries[name] = node
        node.links += 1
        folder.mtime = self.now()

    def create(self, folder: Inode, name: str, path: str, rank: int) -> Inode:
        """A new, empty file."""
        node = self._inode(is_dir=False)
        self._enter(folder, name, node)
        self.log.append(LogEntry("create", path, 0, 0, node.number, rank))
        return node

    def opened(self, path: str, flags: int, rank: int) -> Inode:
        """What an open with these flags finds or creates."""
        if not flags & os.O_CREAT:
            return self.find(path)
        if flags & O_DIRECTORY:
            raise failure(errno.EINVAL, path)
        trail, name, slash = self.parent(path)
        if slash:
            raise failure(errno.EISDIR, path)
        node = self.lookup(trail[-1], name, path) if name else trail[-1]
        if node is None:
            return self.create(trail[-1], name, path, rank)
        if flags & os.O_EXCL:
            raise failure(errno.EEXIST, path)
        if node.is_dir:
            raise failure(errno.EISDIR, path)
        return node

    def existing(self, path: str, flags: int) -> int:
        """How many bytes an open with these flags finds and leaves in the file."""
        if flags & (os.O_TRUNC | O_DIRECTORY) or (flags & os.O_CREAT and flags & os.O_EXCL):
            return 0
        try:
            return len(self.find(path).data)
        except (OSError, ValueError):
            return 0

    def makedirs(self, path: str, rank: int) -> None:
        """The folder and those above it. Raises EEXIST where a file has its name."""
        parts = _parts(path)
        trail = [self.root]
        for index, part in enumerate(parts):
            node = trail[-1]
            if part == "..":
                del trail[max(len(trail) - 1, 1) :]
            elif part != ".":
                child = self.lookup(node, part, path)
                if child is None:
                    child = self._inode(is_dir=True)
                    self._enter(node, part, child)
                    made = "/" * path.startswith("/") + "/".join(parts[: index + 1])
                    self.log.append(LogEntry("mkdir", made, 0, 0, child.number, rank))
                if not child.is_dir:
                    last = index + 1 == len(parts) - path.endswith("/")
                    raise failure(errno.EEXIST if last else errno.ENOTDIR, path)
                trail.append(child)

    def rename(self, old: str, new: str, rank: int) -> None:
        """Give what is called `old` the name `new`, in place of what had it."""
        old_trail, old_name, old_slash = self.parent(old)
        new_trail, new_name, new_slash = self.parent(new)
        if not old_name or not new_name:
            raise failure(errno.EBUSY, old, new)
        node = self.lookup(old_trail[-1], old_name, old)
        if node is None:
            raise failure(errno.ENOENT, old, new)
        target = self.lookup(new_trail[-1], new_name, new)
        if not node.is_dir and (old_slash or new_slash):
            raise failure(errno.ENOTDIR, old, new)
        if node in new_trail:
            raise failure(errno.EINVAL, old, new)
        if target is not None and target in old_trail:
            raise failure(errno.ENOTEMPTY, old, new)
        if target is node:
            return
        if target is not None:
            if node.is_dir != target.is_dir:
                raise failure(errno.ENOTDIR if node.is_dir else errno.EISDIR, old, new)
            if target.entries:
                raise failure(errno.ENOTEMPTY, old, new)
            if self.remembers:
                node.before, target.before = target, None
        del old_trail[-1].entries[old_name]
        node.links -= 1
        old_trail[-1].mtime = self.now()
        self._enter(new_trail[-1], new_name, node)
        self.log.append(LogEntry("rename", old, 0, 0, node.number, rank, new))
        if target is not None:
            self._unlinked(target)

    def unlink(self, path: str, rank: int) -> None:
        """Remove a file's name; its space is free when no descriptor holds it either."""
        trail, name, slash = self.parent(path)
        if not name:
            raise failure(errno.EISDIR, path)
        node = self.lookup(trail[-1], name, path)
        if node is None:
            raise failure(errno.ENOENT, path)
        if node.is_dir:
            raise failure(errno.EISDIR, path)
        if slash:
            raise failure(errno.ENOTDIR, path)
        del trail[-1].entries[name]
        trail[-1].mtime = self.now()
        self.log.append(LogEntry("unlink", path, 0, 0, node.number, rank))
        self._unlinked(node)

    def _unlinked(self, node: Inode) -> None:
        node.links -= 1
        self.let_go(node)

    def let_go(self, node: Inode) -> None:
        """Give the file's space back if nothing holds it any more."""
        if not node.links and not node.opens:
            self.used -= len(node.data)

    # Contents ---------------------------------------------------------------------------------------

    def room(self) -> int | None:
        """Bytes that still fit; None where the disk has no limit."""
        return None if self.capacity is None else max(self.capacity - self.used, 0)

    def write(self, node: Inode, path: str, offset: int, chunk: bytes, rank: int) -> int:
        """Write what fits; ENOSPC where nothing does. Returns the bytes written."""
        if not chunk:
            return 0
        size, room = len(node.data), self.room()
        if room is not None and offset + len(chunk) > size + room:
            fits = size + room - offset
            if fits <= 0:
                raise failure(errno.ENOSPC)
            chunk = chunk[:fits]
        if self.remembers:
            node.before = offset, bytes(node.data[offset : offset + len(chunk)]), size
        apply(node.data, (offset, chunk))
        node.pending.append((offset, chunk))
        node.mtime = self.now()
        self.used += len(node.data) - size
        self.log.append(LogEntry("write", path, offset, len(chunk), node.number, rank, "", chunk))
        return len(chunk)

    def truncate(self, node: Inode, path: str, length: int, rank: int) -> None:
        """Cut the file, or let it grow with zeros."""
        size, room = len(node.data), self.room()
        if room is not None and length - size > room:
            raise failure(errno.ENOSPC)
        if self.remembers:
            node.before = length, bytes(node.data[length:]), size
        apply(node.data, (length, None))
        node.pending.append((length, None))
        node.mtime = self.now()
        self.used += length - size
        self.log.append(LogEntry("truncate", path, 0, length, node.number, rank))

    def damage(self, node: Inode, path: str, length: int, rank: int) -> None:
        """Cut the file from outside: on the medium as well, and without a trace in its times."""
        self.used -= max(len(node.data) - length, 0)
        for content in (node.data, node.durable):
            del content[length:]
        node.pending.append((length, None))
        self.log.append(LogEntry("damage", path, 0, length, node.number, rank))

    def neighbour(self, path: str) -> str:
        """The next file whose name has the same ending, with other contents; "" where there is none."""
        ending = path.rpartition(".")[2]
        alike = [name for name in self.names() if name.rpartition(".")[2] == ending]
        at = alike.index(path) if path in alike else 0
        data = self.find(path).data
        others = (name for name in (*alike[at + 1 :], *alike[:at]) if self.find(name).data != data)
        return next(others, "")

    def swap(self, path: str, rank: int) -> None:
        """Exchange the contents of `path` and its neighbour, durably."""
        other = self.neighbour(path)
        one, two = self.find(path), self.find(other)
        one.data, two.data = two.data, one.data
        one.durable, two.durable = two.durable, one.durable
        one.pending, two.pending = two.pending, one.pending
        for name, node in ((path, one), (other, two)):
            self.log.append(LogEntry("damage", name, 0, len(node.data), node.number, rank))

    def remove(self, path: str, rank: int) -> None:
        """Remove a file, or a folder with all that is in it, as somebody outside would."""
        trail, name, _ = self.parent(path)
        node = self.lookup(trail[-1], name, path) if name else None
        if node is None:
            return
        for below in list(node.entries) if node.is_dir else ():
            self.remove(f"{path}/{below}", rank)
        if not node.is_dir:
            self.unlink(path, rank)
        else:
            del trail[-1].entries[name]
            self.log.append(LogEntry("unlink", path, 0, 0, node.number, rank))

    def names(self) -> list[str]:
        """The path of every file, sorted."""
        found, folders = [], [("", self.root)]
        while folders:
            begin, folder = folders.pop()
            for name, node in folder.entries.items():
                if node.is_dir:
                    folders.append((f"{begin}/{name}", node))
                else:
                    found.append(f"{begin}/{name}")
        return sorted(found)

    def touch(self, node: Inode) -> None:
        """A read: its time counts as with relatime."""
        now = self.now()
        if node.atime <= node.mtime or now - node.atime >= DAY:
            node.atime = now

    # Durability -------------------------------------------------------------------------------------

    def fsync(self, node: Inode, path: str, rank: int, *, fails: bool = False) -> None:
        """Make a file's contents durable, or the names in a folder. fails: lose the changes instead."""
        if fails:
            node.pending.clear()
            self.log.append(LogEntry("failed_fsync", path, 0, 0, node.number, rank))
            return
        if node.is_dir:
            node.durable_entries = dict(node.entries)
        else:
            for change in node.pending:
                apply(node.durable, change)
            node.pending.clear()
        kind = "fsync_dir" if node.is_dir else "fsync"
        self.log.append(LogEntry(kind, path, 0, 0, node.number, rank))

    def durable(self) -> Tree:
        """A new tree of what is durable; its log is empty."""
        image = Tree(self.capacity, self.clock)
        copies = {self.root.number: image.root}

        def copy(node: Inode) -> Inode:
            if node.number in copies:
                return copies[node.number]
            made = copies[node.number] = Inode(node.number, node.mtime, is_dir=node.is_dir)
            made.data = bytearray(node.durable)
            made.durable = bytearray(node.durable)
            image.used += len(made.data)
            return made

        waiting = [self.root]
        seen = {self.root.number}
        while waiting:
            folder = waiting.pop()
            twin = copies[folder.number]
            twin.entries = {name: copy(node) for name, node in folder.durable_entries.items()}
            twin.durable_entries = dict(twin.entries)
            for node in folder.durable_entries.values():
                copies[node.number].links += 1
                if node.is_dir and node.number not in seen:
                    seen.add(node.number)
                    waiting.append(node)
        image._inodes = self._inodes
        image.slept = self.slept
        return image
