"""The plan in flight: a small file mapped into memory that outlives the interpreter.

Before a plan runs it is written here, after the hunt the slot is cleared. A process that dies in
native code (or is killed) leaves its plan behind, and the next start offers it. Writing costs a
memory copy: no system call, and the kernel keeps the page when the process is gone. A machine that
loses power loses the slot; that is not modelled.

A slot belongs to one process at a time (flock); others take the next free one. Where the folder
cannot be written there is no slot, and a hunt runs without.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path

import msgspec

SIZE = 64 << 10
SLOTS_MAX = 16
_LENGTH = 8  # bytes that hold the payload's length, written last


class InFlight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in a slot. plan: as JSON text. explorer: who chose its schedule ("default": the
    plan itself says all). command: repeats the whole hunt up to this plan."""

    plan: str
    explorer: str
    command: str


def home() -> Path:
    """Where slots live: RANKFAULT_HOME, or `.rankfault` in the working directory."""
    return Path(os.environ.get("RANKFAULT_HOME") or ".rankfault")


class Slot:
    """One process's slot. `left`: what an earlier process that died left in it, or None."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._memory = mmap.mmap(file, SIZE)
        self.left = self._read()

    def _read(self) -> InFlight | None:
        length = int.from_bytes(self._memory[:_LENGTH], "little")
        if not 0 < length <= SIZE - _LENGTH:
            return None
        try:
            return msgspec.json.decode(self._memory[_LENGTH : _LENGTH + length], type=InFlight)
        except msgspec.DecodeError:
            return None

    def write(self, plan: InFlight) -> None:
        """Keep `plan` until the next write or clear. One that is too large is not kept."""
        data = msgspec.json.encode(plan)
        self.clear()
        if len(data) <= SIZE - _LENGTH:
            self._memory[_LENGTH : _LENGTH + len(data)] = data
            self._memory[:_LENGTH] = len(data).to_bytes(_LENGTH, "little")

    def clear(self) -> None:
        """No plan is in flight."""
        self._memory[:_LENGTH] = bytes(_LENGTH)

    def close(self) -> None:
        """Give the slot back."""
        self._memory.close()
        os.close(self._file)


def _claim(path: Path) -> int | None:
    """The file, locked by this process and of full size; None when another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError:
        os.close(file)
        raise
    try:
        if os.fstat(file).st_size < SIZE:
            # Written out, not only extended: a sparse file on a full disk would fail at a later
            # write to memory, which kills the process.
            os.pwrite(file, bytes(SIZE), 0)
    except OSError:
        os.close(file)
        raise
    return file


def open_slot(folder: Path | None = None) -> Slot | None:
    """A slot of this process, or None where there can be none."""
    where = home() if folder is None else folder
    with contextlib.suppress(OSError, ValueError):
        where.mkdir(parents=True, exist_ok=True)
        for number in range(SLOTS_MAX):
            file = _claim(where / ("in-flight" if not number else f"in-flight-{number}"))
            if file is not None:
                return Slot(file)
    return None
