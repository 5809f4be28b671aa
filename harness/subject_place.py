"""Where a subject process lives, when that is not where it was forked: another Python, other mounts.

A subject whose dependencies conflict with ours is run by the Python of an environment of its own: the
forked process enters it by exec and keeps its id, its group, its socket, its memory and what it prints
into. That Python needs torch and msgspec. Linux only.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import sys
from pathlib import Path

from harness.subject_wire import Memory

CLONE_NEWNS = 0x00020000
_BEGIN = (
    "import sys; sys.path.insert(0, {root!r}); from harness.subject_child import resume; "
    "resume({link}, {memory}, {size})"
)


def enter_mounts(pid: int) -> None:
    """See the mounts that the process `pid` sees. The working directory stays the same path."""
    here = os.getcwd()
    fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), f"the mounts of process {pid} cannot be entered")
    finally:
        os.close(fd)
    os.chdir(here)


def become(interpreter: str, link: socket.socket, memory: Memory) -> None:
    """Go on under another Python; returns only by raising OSError."""
    for fd in (link.fileno(), memory.fd):
        os.set_inheritable(fd, True)  # noqa: FBT003 - its signature
    begin = _BEGIN.format(
        root=str(Path(__file__).resolve().parents[1]), link=link.fileno(), memory=memory.fd,
        size=memory.size,
    )
    sys.stdout.flush()
    os.execv(interpreter, [interpreter, "-c", begin])


def resumed(link: int, fd: int, size: int) -> tuple[socket.socket, Memory]:
    """The socket and the memory in the new Python."""
    import torch

    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2)
    torch.set_num_threads(1)
    for one in (link, fd):
        os.set_inheritable(one, False)  # noqa: FBT003 - its signature
    return socket.socket(fileno=link), Memory(fd, size)
