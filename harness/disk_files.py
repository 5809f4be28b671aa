"""What a simulated disk hands out: descriptors and the answers of stat."""

from __future__ import annotations

from dataclasses import dataclass

from harness.disk_tree import Inode


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
