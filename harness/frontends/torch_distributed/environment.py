"""What a rank's code sees of the process it runs in: variables, arguments, modules, output.

All ranks of a simulated world share one process, so each has Surroundings of its own, which are in force
only while its code runs: `enter` puts them in place, `leave` takes them back together with whatever the
program has changed in them. The modules that a program imports from its own folder are its own, too: a
module-level variable is not shared among ranks.

Loggers, exit handlers and the filters of warnings are the rank's own, too; warnings are not printed,
since Python shows them once a process. A module that a rank is importing is locked for itself only.
Starting a process is refused with a typed error (threads: rank_threads.py). A program that ends its
process at once (os._exit, os.abort, os.kill) ends its rank.

Not modelled: the C library's environment (native code sees the real one), signals (their handlers are
never called), the working directory, open files, state that torch or another library keeps for the
whole process, such as torch.use_deterministic_algorithms (the default dtype is the rank's own).
"""

from __future__ import annotations

import atexit
import functools
import importlib
import io
import itertools
import logging
import multiprocessing.process
import os
import signal
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from sys import _getframe
from types import ModuleType
from typing import Any

import torch

from harness.errors import ProcessStarted, RankExited
from harness.fabric.frames import is_library, user_frame_of
from harness.frontends.torch_distributed.lane_locks import here
from harness.record import place

PRINTED_MAX = 65536  # characters of output that a rank's log keeps
# Where the process of a program could be started.
_STARTERS = (
    (os, "fork"), (os, "forkpty"), (os, "posix_spawn"), (os, "posix_spawnp"), (os, "system"),
    (os, "execv"), (os, "execve"), (subprocess.Popen, "__init__"),
    (multiprocessing.process.BaseProcess, "start"),
)
# What would end the one process of all ranks.
_ENDERS = ((os, "_exit"), (os, "abort"))

Entry = tuple[Any, str, Any]  # owner, attribute, what the rank sees there


class Output(io.TextIOBase):
    """What a rank prints: kept for its log, the end of it."""

    def __init__(self) -> None:
        self._parts: deque[tuple[str, bool]] = deque()  # with whether its main thread has printed it
        self._held = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Keep `text`."""
        place = here.place
        self._parts.append((text, place is None or not place.several or not place.thread))
        self._held += len(text)
        while self._held > PRINTED_MAX and len(self._parts) > 1:
            self._held -= len(self._parts.popleft()[0])
        return len(text)

    @property
    def text(self) -> str:
        """What has been printed, the end of it."""
        return "".join(text for text, _ in self._parts)[-PRINTED_MAX:]

    @property
    def of_main(self) -> str:
        """The same without what other threads than the main one have printed."""
        return "".join(text for text, main in self._parts if main)[-PRINTED_MAX:]


def _refuse(rank: int, what: str) -> Callable[..., Any]:
    def refuse(*args: object, **kwargs: object) -> Any:
        code, lasti = user_frame_of(_getframe(1))
        raise ProcessStarted(
            f"rank {rank}: {what} at {place(code, lasti)} starts a process inside a simulated run, which "
            "cannot replay it; run the program on real processes, or do without"
        )

    return refuse


def _end(rank: int, what: str) -> Callable[..., Any]:
    def end(code: int = -signal.SIGABRT) -> Any:
        given = code if what == "os._exit" else ""
        raise RankExited(rank, code, f"rank {rank}: the script ended itself with {what}({given})")

    return end


def _kill_of(rank: int) -> Callable[[int, int], None]:
    """os.kill, which leaves alone the one process of all ranks."""
    real = os.kill

    def kill(pid: int, number: int) -> None:
        if number != 0 and pid in (os.getpid(), 0, -1, -os.getpid()):
            told = f"rank {rank}: the script ended itself with os.kill({pid}, {int(number)})"
            raise RankExited(rank, -int(number), told)
        real(pid, number)

    return kill


def _loggers() -> list[Entry]:
    """A logging module without handlers; loggers that libraries have made already stay the process's."""
    root = logging.RootLogger(logging.WARNING)
    return [
        (logging, "root", root), (logging.Logger, "root", root),
        (logging.Logger, "manager", logging.Manager(root)),
    ]


def _variables(given: dict[str, str]) -> dict[Any, Any]:
    """The real environment with `given` in it, in the form that os.environ keeps."""
    held: Any = os.environ
    return {
        **held._data,
        **{held.encodekey(key): held.encodevalue(value) for key, value in given.items()},
    }


class _Defaults:
    """What torch keeps for the whole process, as attributes."""

    @property
    def dtype(self) -> torch.dtype:
        """Of new tensors."""
        return torch.get_default_dtype()

    @dtype.setter
    def dtype(self, value: torch.dtype) -> None:
        if value != torch.get_default_dtype():
            torch.set_default_dtype(value)


class Surroundings:
    """One rank's view of the process.

    folder: where its own modules are imported from. main: its `__main__`. more: further attributes that
    differ while its code runs (world.py). cards: its CUDA devices (cuda_stand_in.py).
    """

    def __init__(
        self, rank: int, folder: str, main: ModuleType, argv: Iterable[str],
        variables: dict[str, str], more: Iterable[Entry] = (),
    ) -> None:
        self.out = Output()
        self.cards: Any = None
        self._folder = folder + os.sep
        self._modules: dict[str, ModuleType] = {"__main__": main}
        self._hidden: dict[str, ModuleType] = {}
        self._known = 0
        self._at_exit: list[Callable[[], Any]] = []
        self._entries: list[tuple[Any, str]] = []
        self._mine: list[Any] = []
        self._theirs: list[Any] = []
        for owner, name, value in (
            (os.environ, "_data", _variables(variables)),
            (os, "putenv", lambda key, value: None),
            (os, "unsetenv", lambda key: None),
            (sys, "argv", list(argv)),
            (sys, "path", [folder, *(path for path in sys.path if path not in ("", folder))]),
            (sys, "stdout", self.out),
            (sys, "stderr", self.out),
            (sys, "excepthook", sys.__excepthook__),
            (atexit, "register", self._register),
            (signal, "signal", lambda number, handler: signal.SIG_DFL),
            (warnings, "filters", [("ignore", None, Warning, None, 0)]),
            (_Defaults(), "dtype", torch.get_default_dtype()),
            (importlib._bootstrap, "_module_locks", {}),
            *_loggers(),
            *((owner, name, _refuse(rank, f"{_named(owner)}.{name}")) for owner, name in _STARTERS),
            *((owner, name, _end(rank, f"{_named(owner)}.{name}")) for owner, name in _ENDERS),
            (os, "kill", _kill_of(rank)),
            *more,
        ):
            self._entries.append((owner, name))
            self._mine.append(value)

    def _register(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """atexit.register."""
        self._at_exit.append(functools.partial(function, *args, **kwargs))
        return function

    def exit(self) -> None:
        """The program has ended: what it has registered for that, last first."""
        while self._at_exit:
            self._at_exit.pop()()

    @property
    def in_force(self) -> bool:
        """Whether the rank's code is running."""
        return bool(_in_force) and _in_force[-1] is self

    def enter(self) -> None:
        """The rank's code goes on: what it sees is its own."""
        if _in_force and _in_force[-1] is not self:  # a lane that was left behind in native code
            _in_force[-1].leave()
        _in_force.append(self)
        self._theirs = [getattr(owner, name) for owner, name in self._entries]
        for (owner, name), value in zip(self._entries, self._mine, strict=True):
            setattr(owner, name, value)
        modules = sys.modules
        if not self._known:
            self._hidden = {name: modules.pop(name) for name in _own_modules(self._folder)}
        for name in self._modules:
            if name in modules:
                self._hidden[name] = modules[name]
        modules.update(self._modules)
        self._known = len(modules)

    def leave(self) -> None:
        """Somebody else's turn: keep what the program has changed, and show the process as it was."""
        if not self.in_force:
            return
        _in_force.pop()
        self._mine = [getattr(owner, name) for owner, name in self._entries]
        for (owner, name), value in zip(self._entries, self._theirs, strict=True):
            setattr(owner, name, value)
        modules = sys.modules
        if len(modules) != self._known:  # new ones stand behind those that were there
            for name, module in [*itertools.islice(modules.items(), self._known, None)]:
                if _own(module, self._folder):
                    self._modules[name] = module
        for name in self._modules:
            modules.pop(name, None)
        modules.update(self._hidden)


def _own(module: ModuleType, folder: str) -> bool:
    """Whether a module comes from the program's folder."""
    path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return isinstance(path, str) and path.startswith(folder) and not is_library(path)


_looked: dict[str, tuple[int, list[str]]] = {}


def _own_modules(folder: str) -> list[str]:
    """Modules of the program's folder that the process has imported for itself."""
    modules = sys.modules
    count, names = _looked.get(folder, (-1, []))
    if count != len(modules):
        names = [
            name for name, module in list(modules.items())
            if name != "__main__" and _own(module, folder)
        ]
        _looked[folder] = len(modules), names
    return names


_in_force: list[Surroundings] = []


def in_force() -> Surroundings | None:
    """Those of the rank whose code is running."""
    return _in_force[-1] if _in_force else None


def _named(owner: Any) -> str:
    return str(owner.__name__)
