"""The files of a simulated disk: contents, descriptors, the answers of stat, errors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Change = tuple[int, bytes | None]  # write at an offset; truncate to a length (None)
Profile = Literal["posix", "ext4", "nfs"]  # what a crash may leave behind: see harness/crash_log.py
ROOT = 1  # the root folder's number


class Image(NamedTuple):
    """A tree as a value, all of it durable: by number, each folder's names and each file's bytes."""

    folders: Mapping[int, Mapping[str, int]]
    files: Mapping[int, bytes]


EMPTY = Image({ROOT: {}}, {})


class Inode:
    """A file or a folder, whatever its names. `opens` counts its descriptors, `links` its names."""

    __slots__ = (
        "atime", "before", "data", "durable", "durable_entries", "entries", "is_dir", "links", "mtime",
        "number", "opens", "pending",
    )

    def __init__(self, number: int, now: float, *, is_dir: bool) -> None:
        self.number = number
        self.is_dir = is_dir
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[Change] = []
        self.entries: dict[str, Inode] = {}
        self.durable_entries: dict[str, Inode] = {}
        self.mtime = self.atime = now
        self.links = 0
        self.opens = 0
        # What a stale read shows: the bytes from an offset on and the size before the last change, or
        # the file that this one replaced by rename.
        self.before: tuple[int, bytes, int] | Inode | None = None

    def stale(self, offset: int, length: int) -> bytes:
        """Bytes as they were before the file's last change (nothing, if it has not changed)."""
        if isinstance(self.before, Inode):
            return bytes(self.before.data[offset : offset + length])
        if self.before is None:
            return bytes(self.data[offset : offset + length])
        at, held, size = self.before
        older = bytearray(size)
        kept = min(size, len(self.data))
        older[:kept] = self.data[:kept]
        older[at : at + len(held)] = held
        return bytes(older[offset : offset + length])


def apply(content: bytearray, change: Change) -> None:
    """Make a change to a file's contents; what lies beyond its end becomes zeros first."""
    at, chunk = change
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    if chunk is None:
        del content[at:]
    else:
        content[at : at + len(chunk)] = chunk


def failure(number: int, path: str | None = None, target: str | None = None) -> OSError:
    """The OSError that the operating system gives for an errno."""
    if path is None:
        return OSError(number, os.strerror(number))
    if target is None:
        return OSError(number, os.strerror(number), path)
    return OSError(number, os.strerror(number), path, None, target)


@dataclass(frozen=True, slots=True)
class FileStat:
    """What `stat` tells. size in bytes; times in seconds since the epoch of the disk's clock."""

    size: int
    mtime: float
    atime: float
    is_dir: bool


@dataclass(eq=False, slots=True)
class OpenFile:
    """A descriptor: the file, how it was opened, and what faults may ask of it.

    unit: bytes of which offsets and lengths must be multiples (direct I/O), else 1.
    """

    node: Inode
    path: str
    readable: bool
    writable: bool
    appends: bool
    unit: int

    @property
    def size(self) -> int:
        """Bytes in the file now."""
        return len(self.node.data)

    def moved(self, view: memoryview, offset: int) -> int:
        """How many bytes a read into `view` would bring."""
        return max(min(view.nbytes, self.size - offset), 0) if offset >= 0 and self.readable else 0

    def is_stale(self, offset: int, length: int) -> bool:
        """Whether what was there before the last change differs from what is there now."""
        return self.node.stale(offset, length) != self.node.data[offset : offset + length]
