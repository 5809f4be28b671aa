"""The other end of subject.py: the process that forks subjects, and what a subject process does.

The forking process is started by exec, imports torch once and starts no thread, so that a fork of it is
safe and takes milliseconds (a fork of the harness itself is neither: it has threads). It owns a folder
for the subjects' files. When its harness is gone, however that ended, it kills the subjects with all
they started and removes the folder; subjects in turn die with it (PR_SET_PDEATHSIG).

Not modelled: a process that a subject moved into a session of its own, and what subjects started when
the forking process itself is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import importlib.util
import os
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch

from harness.ambient import nap
from harness.errors import UsageError, nearest
from harness.subject_place import become, enter_mounts, resumed
from harness.subject_wire import Memory, receive, send

PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 1.0  # for a process that closed its socket to end by itself


def main(fd: int) -> None:
    """Serve one harness over the socket `fd`.

    `start` forks a subject, `reap` says how one ended, `import` makes later forks begin faster.
    """
    control = socket.socket(fileno=fd)
    folder = tempfile.mkdtemp(prefix="rankfault-")
    children: set[int] = set()
    own = os.getpid()
    try:
        control.send(folder.encode())
        while True:
            data, fds, _, _ = socket.recv_fds(control, 1 << 16, 3)
            if not data:
                return
            what, value = msgspec.msgpack.decode(data)
            if what == "start":
                pid = os.fork()
                if not pid:
                    control.close()
                    _become_subject(own, value, fds)
                for one in fds:
                    os.close(one)
                children.add(pid)
                control.send(msgspec.msgpack.encode(pid))
            elif what == "import":
                with contextlib.suppress(Exception):  # the subject that needs it will say so
                    importlib.import_module(value)
                control.send(b"done")
            else:
                children.discard(value)
                control.send(msgspec.msgpack.encode(_reap(value)))
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        for pid in children:
            _kill(pid)
        shutil.rmtree(folder, ignore_errors=True)


def _reap(pid: int) -> int:
    """The exit code of a subject, or minus its signal; it is killed if it does not end soon."""
    for _ in range(round(GRACE_SECONDS / 0.005)):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it left behind
            return os.waitstatus_to_exitcode(status)
        nap(0.005)
    _kill(pid)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _become_subject(parent: int, size: int, fds: list[int]) -> NoReturn:
    """What the forked process does until its socket ends; never returns."""
    code = 70
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before the call
            os._exit(code)
        link, log = socket.socket(fileno=fds[0]), fds[2]
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        for standard in (1, 2):
            os.dup2(log, standard)
        faulthandler.enable(file=2)
        faulthandler.register(signal.SIGUSR1, file=2)
        torch.set_num_threads(1)
        memory = Memory(fds[1], size)
        os.close(log)
        _serve(link, memory)
        code = 0
    except BaseException:  # an ordinary exit would run the harness's own handlers
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def resume(link: int, memory: int, size: int) -> None:
    """Serve on, under another Python (subject_place.become)."""
    ours, shared = resumed(link, memory, size)
    send(ours, shared.pack(["answer", None]))
    _serve(ours, shared)


def _serve(link: socket.socket, memory: Memory) -> None:
    subject: Any = None
    while (data := receive(link)) is not None:
        try:
            what, *rest, memory.free = memory.unpack(data)
            value: Any = None
            if what == "mounts":
                enter_mounts(*rest)
            elif what == "become":
                become(rest[0], link, memory)
            elif what == "new":
                name, args, path, folder = rest
                sys.path[:] = path or sys.path
                os.chdir(folder)
                subject, value = _named(name)(*args), None
            else:
                method, args, named = rest
                value = _method(subject, method)(*args, **named)
            try:
                reply = memory.pack(["answer", value])
            except (TypeError, OverflowError, ValueError, RecursionError, UsageError) as error:
                raise UsageError(f"its answer: {error}") from None
        except Exception as error:
            wrong = isinstance(error, UsageError)
            kinds = [kind.__name__ for kind in type(error).__mro__]
            where = traceback.format_exc()
            told = " ".join(str(error).split())
            reply = memory.pack(["usage" if wrong else "error", kinds, told, where])
        send(link, reply)


def _method(subject: Any, name: str) -> Any:
    method = getattr(subject, name, None)
    if not callable(method):
        known = [one for one in dir(subject) if not one.startswith("_")]
        raise UsageError(f"no method {name!r}; {nearest(name, known)}")
    return method


def _named(name: str) -> Any:
    """The object called `module:attribute` or `/path/file.py::attribute`. Raises UsageError."""
    in_file = "::" in name
    place, _, attribute = name.partition("::" if in_file else ":")
    try:
        module = _from_file(place) if in_file else importlib.import_module(place)
    except (Exception, SystemExit) as error:
        told = " ".join(str(error).split())
        raise UsageError(f"{place} cannot be imported: {type(error).__name__}: {told}") from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [one for one in vars(module) if not one.startswith("_")]
            raise UsageError(f"{place} has no {attribute!r}; {nearest(attribute, known)}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{name} is {type(found).__name__}; allowed is a class or a function")
    return found


def _from_file(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"rankfault_subject_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
