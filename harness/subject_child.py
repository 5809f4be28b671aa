"""What a subject process does (subject.py has the other end; zygote.py forks it)."""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from harness.errors import UsageError, nearest
from harness.subject_place import become, enter_mounts, resumed
from harness.subject_wire import Memory, receive, send


def begin(size: int, fds: list[int]) -> None:
    """What a subject process does until its socket ends. fds: the socket, and `size` bytes of memory."""
    link = socket.socket(fileno=fds[0])
    memory = Memory(fds[1], size)
    _serve(link, memory)


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
                subject = _named(name)(*args)
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
