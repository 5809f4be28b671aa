"""Real file systems that can fail: ext4 whose power is cut, and a small one that gets full.

    with PowerCut() as disk:
        subject = Subject("my_store.py::MyStore", mounts_of=disk)
        subject.call("open", disk.inside, within=5.0)
        disk.cut()                # nothing of what was not durable will be there
        subject.kill()
        disk.restore()            # the journal is replayed: look at disk.folder, or start a new subject

`PowerCut` is ext4 on a loop device over anonymous memory. The cut is EXT4_IOC_SHUTDOWN: from then on
every write fails with EIO, and what is in the page cache never reaches the device. `SmallDisk` is a tmpfs
of a few blocks. Both are mounted in a mount namespace of a keeper's own, a shell that ends when its input
does: nobody else sees the mount, and with the harness, however that ends, everything is gone. Processes
of the harness reach the folder through the keeper's root (`folder`); a subject with `mounts_of` shares
the keeper's mounts and has an ordinary path (`inside`), which matters to programs that resolve paths.

Linux, and root; `unavailable()` says why it cannot be had here. Not modelled: sectors torn by the device
itself, a device that lies about its cache, other file systems. What a cut leaves depends on the kernel's
timing; only what was made durable is certain.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from harness.ambient import nap
from harness.errors import UsageError

EXT4_IOC_SHUTDOWN = 0x8004587D
LOG_FLUSHED, LOG_LOST = 1, 2  # what the ioctl does with the journal's open transaction
LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
LOOP_INFO_BYTES, LOOP_FLAGS_AT = 232, 52  # struct loop_info64
BYTES = 32 << 20
SMALL_BYTES = 64 << 10
MEMORY_NAME = "rankfault-power-cut"
TRIES = 50
KEEPER = 'sh; umount -l "$0"; rmdir "$0"'  # it serves until its input ends, then tidies up
_Self = TypeVar("_Self", bound="MountedDisk")


class MountedDisk:
    """A file system in a mount namespace of its own; a context manager.

    folder: its path for this process. inside: its path in the namespace. keeper: the process id of who
    holds it.
    """

    folder: str
    inside: str
    keeper: int

    def _mount(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        with contextlib.ExitStack() as stack:
            self.inside = tempfile.mkdtemp(prefix="rankfault-mount-")
            stack.callback(shutil.rmtree, self.inside, ignore_errors=True)
            self._shell = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "slave", "sh", "-c", KEEPER, self.inside],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(self._end)
            self.keeper = self._shell.pid
            seen_by_it = os.path.join("/proc", str(self.keeper), "root")
            self.folder = seen_by_it + self.inside
            self._opened(stack)
            self._mount()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _opened(self, stack: contextlib.ExitStack) -> None:
        """What has to be there before the first mount."""

    def _end(self) -> None:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        with contextlib.suppress(OSError):
            self._shell.stdin.close()
        self._shell.stdout.close()
        self._shell.wait()

    def _do(self, command: str) -> None:
        """Let the keeper run a command. Raises OSError with what it printed."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its last words are still to be read
            self._shell.stdin.write(f"( {command} ) 2>&1; printf '\\n=%s\\n' $?\n".encode())
            self._shell.stdin.flush()
        told: list[str] = []
        while line := self._shell.stdout.readline().decode(errors="replace"):
            if line.startswith("="):
                if line == "=0\n":
                    return
                break
            told.append(line)
        raise OSError(errno.EIO, f"{command}: {' '.join(' '.join(told).split()) or 'the keeper ended'}")


class PowerCut(MountedDisk):
    """ext4, `size` bytes, whose power can be cut."""

    def __init__(self, size: int = BYTES) -> None:
        self._size = size

    def cut(self, *, log_flushed: bool = False, after: float = 0.0) -> None:
        """Cut the power, `after` so many seconds: all later writes fail, what is not durable is lost.

        log_flushed: the journal's open transaction is written first, so that names and sizes may be
        there whose data is not.
        """
        nap(after)
        self.cut_at(self.folder, log_flushed=log_flushed)

    @staticmethod
    def cut_at(folder: str, *, log_flushed: bool = False) -> None:
        """The same for a process that shares the mounts, and cuts the power under itself."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flag = LOG_FLUSHED if log_flushed else LOG_LOST
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("<I", flag))
        finally:
            os.close(fd)

    def restore(self) -> None:
        """Mount it again, as a machine does that starts. Raises UsageError while its files are open."""
        for left in reversed(range(TRIES)):
            try:
                self._do(f"umount {shlex.quote(self.inside)}")
                break
            except OSError as error:
                if not left:
                    told = "end the processes that use it before restore()"
                    raise UsageError(f"power cut: {error.strerror}; {told}") from None
                nap(0.01)
        self._mount()

    def _opened(self, stack: contextlib.ExitStack) -> None:
        self._loop, device = _loop(self._size)
        stack.callback(os.close, device)
        made = subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-E", "nodiscard", self._loop], capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL,
        )
        if made.returncode:
            raise OSError(errno.EIO, f"mkfs.ext4: {' '.join(made.stderr.split())}")

    def _mount(self) -> None:
        self._do(f"mount -t ext4 {self._loop} {shlex.quote(self.inside)}")

    @staticmethod
    def unavailable() -> str:
        """Why there can be none here; "" if there can. Tried once a process, with a whole cycle."""
        return _unavailable_power_cut()


class SmallDisk(MountedDisk):
    """A tmpfs of `size` bytes (rounded up to pages)."""

    def __init__(self, size: int = SMALL_BYTES) -> None:
        self._size = size

    def resize(self, size: int) -> None:
        """Give it more room."""
        self._do(f"mount -o remount,size={size} {shlex.quote(self.inside)}")

    def _mount(self) -> None:
        self._do(f"mount -t tmpfs -o size={self._size},mode=700 none {shlex.quote(self.inside)}")

    @staticmethod
    def unavailable() -> str:
        """Why there can be none here; "" if there can."""
        return _unavailable_small_disk()


def _loop(size: int) -> tuple[str, int]:
    """A loop device over anonymous memory, and a descriptor of it. It is released with the last one."""
    memory = os.memfd_create(MEMORY_NAME)
    control = -1
    try:
        os.ftruncate(memory, size)
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        info = bytearray(LOOP_INFO_BYTES)
        struct.pack_into("<I", info, LOOP_FLAGS_AT, LO_FLAGS_AUTOCLEAR)
        configuration = struct.pack("<II", memory, 0) + bytes(info) + bytes(64)
        for _ in range(TRIES):
            path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, configuration)
                return path, device
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # else somebody else took it in between
                    raise
        raise OSError(errno.EBUSY, "every free loop device was taken by somebody else")
    finally:
        os.close(memory)
        if control >= 0:
            os.close(control)


def _why_not(attempt: Callable[[], None]) -> str:
    """The reason why `attempt` fails, in one line."""
    if os.name != "posix" or not Path("/proc/self/ns/mnt").exists():
        return "it needs Linux"
    if os.geteuid() != 0:
        return "it needs root"
    try:
        attempt()
    except UsageError as error:
        return str(error)
    except OSError as error:
        name = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{name}"
    return ""


@cache
def _unavailable_power_cut() -> str:
    def attempt() -> None:
        with PowerCut() as disk:
            path = Path(disk.folder, "lost")
            path.write_bytes(b"x")
            disk.cut()
            disk.restore()
            if path.exists():
                raise OSError(errno.EIO, "the cut loses nothing")

    why = _why_not(attempt)
    return f"no power cut: {why}" if why else ""


@cache
def _unavailable_small_disk() -> str:
    def attempt() -> None:
        with SmallDisk():
            pass

    why = _why_not(attempt)
    return f"no small disk: {why}" if why else ""
