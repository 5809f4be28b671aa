"""One tree of errors, and the status codes that tasks and commits report.

What a caller did wrong is raised at the call; what went wrong with a block is a code in its task,
with the reason in `store.error(task)`. Codes are UCM's (second generation) where it has one.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

OK = 0
FAILED = -1
BAD_PARAMETER = -50000
NO_MEMORY = -50001
OS_ERROR = -50002
RETRY = -50004
NOT_FOUND = -50005
DAMAGED = -50007
UNSUPPORTED = -50008
NO_SPACE = -50009
TIMEOUT = -50010
CANCELLED = -50011  # ours: UCM cannot cancel


class StoreError(Exception):
    """Anything the store reports; `code` is its status, `errno` the system's or 0."""

    code = FAILED

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class BadParameter(StoreError, ValueError):
    """The call itself is wrong: ids, tensors, shard index."""

    code = BAD_PARAMETER


class AlignmentError(BadParameter):
    """Direct I/O with `strict_alignment`, and a tensor's address or length does not fit."""


class ConfigError(StoreError, ValueError):
    """A configuration value is wrong: names the field, what was given and what is allowed."""

    code = BAD_PARAMETER


class UnknownConnector(StoreError, ValueError):
    """The factory knows no connector of this name."""

    code = BAD_PARAMETER


class StorageUnusable(StoreError):
    """The storage path cannot be used: not a folder, no permission, no space, no direct I/O."""

    code = OS_ERROR


class AlreadyWaited(StoreError):
    """A second wait for a task whose first wait returned its final status."""


class StoreClosed(StoreError):
    """The store is closed."""


class StoreForked(StoreError):
    """The store was made by the process that forked this one."""


class BlockNotFound(StoreError):
    """No such block that this store may see."""

    code = NOT_FOUND


class BlockDamaged(StoreError):
    """The file is not what was written: cut short, changed, or another block's."""

    code = DAMAGED


class BlockMismatch(StoreError):
    """The block is whole, but the destination has another length or dtype."""

    code = BAD_PARAMETER


class DumpRunning(StoreError):
    """Committed before its dump was done: wait for the dump, then commit again."""

    code = RETRY


class DumpDropped(StoreError):
    """The dump was given up: cancelled, dropped or replaced before it was done."""

    code = CANCELLED


class TaskCancelled(StoreError):
    """The task was cancelled before this block's turn came."""

    code = CANCELLED


class DiskFailed(StoreError):
    """The disk refused an operation; `errno` says why."""

    code = OS_ERROR

    @classmethod
    def of(cls, error: OSError, doing: str) -> StoreError:
        """The typed error for what the system said while `doing` something."""
        number = error.errno or errno.EIO
        text = f"{doing}: {errno.errorcode.get(number, number)} ({error.strerror or error})"
        return DiskFull(text, number) if number in FULL else cls(text, number)


class DiskFull(DiskFailed):
    """No space, or no quota."""

    code = NO_SPACE


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BlockFailure(NamedTuple):
    """Why one block of a task failed."""

    block_id: bytes
    shard: int
    errno: int
    text: str
    code: int
