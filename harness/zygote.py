"""The process that forks subjects and ranks, and what every process that it forks does first.

It is started by exec, imports torch once and starts no thread, so that a fork of it is safe (a fork of
the harness itself is not: it has threads) and costs no import. It owns a folder for its children's
files. When its harness is gone, however that ended, it kills the children with all they started and
removes the folder; children in turn die with it (PR_SET_PDEATHSIG). supervise.py is the other end.

Not modelled: a process that a child moved into a session of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
import torch

from harness.ambient import nap

PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 1.0  # for a process whose sockets are closed to end by itself
FDS_MAX = 8
FAILED = 70  # the exit code of a child whose body raised


def main(fd: int) -> None:
    """Serve one harness over the socket `fd`.

    `start` forks a child that calls `module:function`, found on a given path, with a value and
    descriptors, the last of which takes what it prints. `reap` says how one ended. `import` makes later
    forks begin faster.
    """
    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a child that is asked for its stacks too early lives
    folder = tempfile.mkdtemp(prefix="rankfault-")
    children: set[int] = set()
    own = os.getpid()
    try:
        control.send(folder.encode())
        while True:
            data, fds, _, _ = socket.recv_fds(control, 1 << 16, FDS_MAX)
            if not data:
                return
            what, value = msgspec.msgpack.decode(data)
            if what == "start":
                pid = os.fork()
                if not pid:
                    control.close()
                    _begin(own, value, fds)
                for one in fds:
                    os.close(one)
                children.add(pid)
                control.send(msgspec.msgpack.encode(pid))
            elif what == "import":
                with contextlib.suppress(Exception):  # the child that needs it will say so
                    importlib.import_module(value)
                control.send(b"done")
            else:
                children.discard(value)
                control.send(msgspec.msgpack.encode(reap(value)))
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        for pid in children:
            kill(pid)
        shutil.rmtree(folder, ignore_errors=True)


def _begin(parent: int, value: list[Any], fds: list[int]) -> NoReturn:
    entry, given, sys.path[:] = value
    become_child(parent, fds[-1], lambda: _call(entry, given, fds[:-1]))


def reap(pid: int) -> int:
    """The exit code of a child, or minus its signal; it is killed if it does not end soon."""
    for _ in range(round(GRACE_SECONDS / 0.005)):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it left behind
            return os.waitstatus_to_exitcode(status)
        nap(0.005)
    kill(pid)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def kill(pid: int) -> None:
    """SIGKILL for a process and its group."""
    for one in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            one(pid, signal.SIGKILL)


def become_child(parent: int, log: int, body: Callable[[], None]) -> NoReturn:
    """What a forked process does: a group of its own, dying with its parent, printing to `log`, its
    stacks printed on SIGUSR1, one torch thread; then `body`. Never returns."""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before the call
            os._exit(FAILED)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        for standard in (1, 2):
            os.dup2(log, standard)
        os.close(log)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # whatever captured them
    except BaseException as error:
        leave(error)
    _do(body)


def _do(body: Callable[[], None]) -> NoReturn:
    """What every child does, forked or spawned; an ordinary exit would run the harness's handlers."""
    ended: BaseException | None = None
    try:
        faulthandler.enable(file=2)
        faulthandler.register(signal.SIGUSR1, file=2)
        torch.set_num_threads(1)
        body()
    except BaseException as error:
        ended = error
    finally:
        leave(ended)


def spawn(value: list[Any], fds: list[int]) -> NoReturn:
    """The body of a child that becomes a fresh interpreter, which calls `module:function` with a value
    (anything whose repr makes it again) and the descriptors."""
    for fd in fds:
        os.set_inheritable(fd, True)  # noqa: FBT003
    entry, given = value
    begin = f"from harness.zygote import spawned; spawned({entry!r}, {given!r}, {fds!r})"
    command = f"import sys; sys.path[:] = {sys.path!r}; {begin}"
    os.execv(sys.executable, [sys.executable, "-c", command])


def spawned(entry: str, given: Any, fds: list[int]) -> NoReturn:
    """Where the fresh interpreter of `spawn` begins."""
    _do(lambda: _call(entry, given, fds))


def _call(entry: str, given: Any, fds: list[int]) -> None:
    module, _, name = entry.partition(":")
    getattr(importlib.import_module(module), name)(given, fds)


def leave(error: BaseException | None) -> NoReturn:
    """End this process as an uncaught error (None: a return) ends one, whatever is on its stack."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
    elif error is not None:
        code = FAILED
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
