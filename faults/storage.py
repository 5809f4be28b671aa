"""What storage does to a correct program: errors, damage, delay. It survives, or fails cleanly.

Each fault concerns operations of the simulated disk (kinds `disk_*`; harness/simulated_disk.py says what
an operation offers: `file` is the descriptor's file), or readings of a rank's wall clock. Modelled:
single operations that fail, do less than was asked, touch the wrong bytes, are lost or take long; files
that somebody else removes or exchanges. Not modelled here: the crash of the process (environment.py:
crash), what a crash of the machine leaves behind (the disk's durable image).

`matches` does not depend on a fault's other fields, so that any value fires where the fault was placed:
an errno that an operation cannot give becomes EIO.
"""

from __future__ import annotations

import errno
import os
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from harness import Drop, Fault, Operation, Raise

_MAKING = frozenset(("disk_makedirs", "disk_rename", "disk_unlink", "disk_utime"))
_WRITING = frozenset(("disk_pwrite", "disk_fsync", "disk_truncate"))
_FOLLOWING = frozenset(
    ("disk_open", "disk_fsync_dir", "disk_listdir", "disk_stat", "disk_exists", "disk_free_bytes")
)
_BLOCK = 4096


def _possible(error: str, op: Operation) -> bool:
    """Whether Linux, on a local or a network file system, gives that errno for that operation."""
    creates = op.kind == "disk_open" and bool(op.args["flags"] & os.O_CREAT)
    writes = op.kind == "disk_open" and bool(op.args["flags"] & (os.O_WRONLY | os.O_RDWR))
    match error:
        case "ENOSPC":
            return op.kind in _WRITING or op.kind in ("disk_makedirs", "disk_rename") or creates
        case "EACCES":
            return op.kind in _MAKING or op.kind in _FOLLOWING
        case "EROFS":
            return op.kind in _MAKING or op.kind in _WRITING or writes or creates
        case "EINTR":
            return op.kind in ("disk_open", "disk_pread", "disk_close") or op.kind in _WRITING
        case _:
            return True


def _error(name: str) -> Raise:
    number = int(getattr(errno, name))
    return Raise(OSError(number, os.strerror(number)))


def _reads(op: Operation) -> int:
    """How many bytes a pread would bring; 0 for anything else."""
    file = op.args.get("file")
    if op.kind != "disk_pread" or file is None:
        return 0
    return int(file.moved(op.args["view"], op.args["offset"]))


def _writes(op: Operation) -> int:
    """How many bytes a pwrite is asked to write; 0 for anything else and for what fails anyway."""
    file = op.args.get("file")
    if op.kind != "disk_pwrite" or file is None or not file.writable or op.args["offset"] < 0:
        return 0
    return int(op.args["view"].nbytes)


def _read_open(op: Operation) -> bool:
    """Whether a file with contents is opened only to be read."""
    if op.kind != "disk_open" or op.args["existing"] < 1:
        return False
    return not op.args["flags"] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)


def _half(count: int, op: Operation) -> int:
    """The larger part of half as many bytes that the descriptor can move; 0 where there is none."""
    unit = op.args["file"].unit
    return int(count // 2 // unit * unit)


class _Storage(Fault, frozen=True, forbid_unknown_fields=True, tag="storage"):
    """A fault of the disk; of all ranks at once only where that has a meaning."""

    family: ClassVar[Literal["environment", "bug"]] = "environment"
    everywhere: ClassVar[bool] = False


class IoError(_Storage, frozen=True, forbid_unknown_fields=True, tag="io_error"):
    """A disk operation fails with an errno and does nothing.

    An errno that the operation cannot give (ENOSPC of a read) becomes EIO.
    """

    everywhere: ClassVar[bool] = True  # a broken disk, a full one

    error: Literal["EIO", "ENOSPC", "EACCES", "EROFS", "EINTR", "ESTALE"] = "EIO"

    def matches(self, op: Operation) -> bool:
        """Every operation of the disk."""
        return op.kind.startswith("disk_")

    def rewrite(self, op: Operation) -> Raise:
        """Raise OSError."""
        return _error(self.error if _possible(self.error, op) else "EIO")


class ShortRead(_Storage, frozen=True, forbid_unknown_fields=True, tag="short_read"):
    """A read brings half of the bytes that are there, and says so."""

    def matches(self, op: Operation) -> bool:
        """Reads that bring at least two bytes (blocks, with direct I/O)."""
        return _half(count, op) > 0 if (count := _reads(op)) else False

    def rewrite(self, op: Operation) -> Operation:
        """Limit what is read."""
        return op.with_args(limit=_half(_reads(op), op))


class ShortWrite(_Storage, frozen=True, forbid_unknown_fields=True, tag="short_write"):
    """A write writes half of its bytes, and says so."""

    def matches(self, op: Operation) -> bool:
        """Writes of at least two bytes (blocks, with direct I/O)."""
        return _half(count, op) > 0 if (count := _writes(op)) else False

    def rewrite(self, op: Operation) -> Operation:
        """Limit what is written."""
        return op.with_args(limit=_half(_writes(op), op))


class MisdirectedWrite(_Storage, frozen=True, forbid_unknown_fields=True, tag="misdirected_write"):
    """A write lands some blocks of 4096 bytes behind its place in the file."""

    blocks: Annotated[int, Meta(ge=1, le=64)] = 1

    def matches(self, op: Operation) -> bool:
        """Writes of at least one byte; one to a file opened for appending has no place."""
        return _writes(op) > 0 and not op.args["file"].appends

    def rewrite(self, op: Operation) -> Operation:
        """Move the offset."""
        return op.with_args(offset=op.args["offset"] + _BLOCK * self.blocks)


class BitFlip(_Storage, frozen=True, forbid_unknown_fields=True, tag="bit_flip"):
    """One bit of what is read or written is flipped.

    `bit` counts from the first byte moved, and goes round in what is moved.
    """

    bit: Annotated[int, Meta(ge=0, lt=1 << 20)] = 0

    def matches(self, op: Operation) -> bool:
        """Reads and writes that move at least one byte."""
        return _reads(op) > 0 or _writes(op) > 0

    def rewrite(self, op: Operation) -> Operation:
        """Flip the bit on its way: a read's damage is gone the next time, a write's stays."""
        return op.with_args(flip=self.bit)


class Truncation(_Storage, frozen=True, forbid_unknown_fields=True, tag="truncation"):
    """A file has lost its second half, on the medium too, when it is opened."""

    def matches(self, op: Operation) -> bool:
        """Opens of a file with contents that do not empty it themselves."""
        return op.kind == "disk_open" and op.args["existing"] > 0

    def rewrite(self, op: Operation) -> Operation:
        """Cut the file."""
        return op.with_args(cut=op.args["existing"] // 2)


class SwappedFiles(_Storage, frozen=True, forbid_unknown_fields=True, tag="swapped_files"):
    """A file has changed contents with the next one of its ending when it is opened."""

    def matches(self, op: Operation) -> bool:
        """Opens of a file with contents for reading, where there is another such file."""
        return _read_open(op) and bool(op.args["tree"].neighbour(op.args["path"]))

    def rewrite(self, op: Operation) -> Operation:
        """Exchange them."""
        return op.with_args(swapped=True)


class Evicted(_Storage, frozen=True, forbid_unknown_fields=True, tag="evicted"):
    """Somebody else removes a file between its lookup and its opening, as a store's collector may."""

    def matches(self, op: Operation) -> bool:
        """Opens of a file with contents for reading."""
        return _read_open(op)

    def rewrite(self, op: Operation) -> Operation:
        """Remove it first."""
        return op.with_args(gone=op.args["path"])


class FolderGone(_Storage, frozen=True, forbid_unknown_fields=True, tag="folder_gone"):
    """The folder with all its files is removed while it is in use."""

    def matches(self, op: Operation) -> bool:
        """Opens that create a file, and renames."""
        creates = op.kind == "disk_open" and bool(op.args["flags"] & os.O_CREAT)
        return creates or op.kind == "disk_rename"

    def rewrite(self, op: Operation) -> Operation:
        """Remove the folder first."""
        path = op.args["path"] if op.kind == "disk_open" else op.args["old"]
        return op.with_args(gone=os.path.dirname(path))


class ClockJump(_Storage, frozen=True, forbid_unknown_fields=True, tag="clock_jump"):
    """The wall clock of a rank's process jumps by so many seconds, and stays there."""

    seconds: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 7_200

    def matches(self, op: Operation) -> bool:
        """Every reading of the wall clock."""
        return op.kind == "clock_time"

    def rewrite(self, op: Operation) -> Any:
        """Jump before this reading."""
        return op.with_args(seconds=float(self.seconds))


class FailedFsync(_Storage, frozen=True, forbid_unknown_fields=True, tag="failed_fsync"):
    """An fsync fails, and what it should have made durable never will be.

    As Linux does, the next one succeeds although nothing was written.
    """

    error: Literal["EIO", "ENOSPC"] = "EIO"

    def matches(self, op: Operation) -> bool:
        """Every fsync of a file or a folder."""
        return op.kind in ("disk_fsync", "disk_fsync_dir")

    def rewrite(self, op: Operation) -> Operation:
        """Have the fsync drop the changes and raise."""
        return op.with_args(error=int(getattr(errno, self.error)))


class FailedRename(_Storage, frozen=True, forbid_unknown_fields=True, tag="failed_rename"):
    """A rename fails; both names stay as they were."""

    error: Literal["EIO", "ENOSPC", "EACCES", "EROFS", "ESTALE"] = "EIO"

    def matches(self, op: Operation) -> bool:
        """Every rename."""
        return op.kind == "disk_rename"

    def rewrite(self, op: Operation) -> Raise:
        """Raise OSError."""
        return _error(self.error)


class LostWrite(_Storage, frozen=True, forbid_unknown_fields=True, tag="lost_write"):
    """A write is acknowledged and never done."""

    def matches(self, op: Operation) -> bool:
        """Writes of at least one byte."""
        return _writes(op) > 0

    def rewrite(self, op: Operation) -> Drop:
        """Drop it; the disk says that all was written."""
        return Drop()


class StaleRead(_Storage, frozen=True, forbid_unknown_fields=True, tag="stale_read"):
    """A read brings what was there before the file's last change.

    The last change is a write, a truncation, or the rename that put this file in another one's place.
    """

    def matches(self, op: Operation) -> bool:
        """Reads that bring something else then."""
        count = _reads(op)
        return count > 0 and bool(op.args["file"].is_stale(op.args["offset"], op.args["view"].nbytes))

    def rewrite(self, op: Operation) -> Operation:
        """Read the older contents."""
        return op.with_args(stale=True)


class SlowIo(_Storage, frozen=True, forbid_unknown_fields=True, tag="slow_io"):
    """A disk operation takes long (virtual time); the other lanes go on meanwhile."""

    everywhere: ClassVar[bool] = True

    milliseconds: Annotated[int, Meta(ge=1, le=3_600_000)] = 1_000

    def matches(self, op: Operation) -> bool:
        """Every operation of the disk."""
        return op.kind.startswith("disk_")

    def rewrite(self, op: Operation) -> Any:
        """Sleep before it."""
        return op.with_args(seconds=self.milliseconds / 1000)


__all__ = [
    "BitFlip",
    "ClockJump",
    "Evicted",
    "FailedFsync",
    "FailedRename",
    "FolderGone",
    "IoError",
    "LostWrite",
    "MisdirectedWrite",
    "ShortRead",
    "ShortWrite",
    "SlowIo",
    "StaleRead",
    "SwappedFiles",
    "Truncation",
]
