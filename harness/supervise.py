"""Processes that the harness starts, watches and ends, whatever they do.

    child = supervised("my.module:entry", value, fds)      # forked by the zygote (zygote.py)
    child.ended(within=5.0)                                # an Ending, or None while it runs
    child.stop()                                           # SIGTERM, grace, SIGKILL: an Ending

Every deadline is held here, in the parent (`Limits`, `Deadline`), by the clock of the machine. Before a
child is killed its Python stacks can be taken (`stacks`): the child's faulthandler prints them on
SIGUSR1, without its interpreter's help, so a loop in native code is no obstacle; a process that is
stopped (SIGSTOP) cannot print, which is said instead. How a child ended is data: its exit code, or minus
the signal, and what it printed.

Nothing is left: children die with the harness, also when that is killed (PR_SET_PDEATHSIG, and the
zygote sees its socket end); memory and logs are memfds, which have no name that could outlive them; the
one folder is the zygote's. Linux only. Not modelled: a process that moved into a session of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from harness.ambient import nap, now
from harness.errors import EngineError, UsageError
from harness.zygote import become_child, kill, reap

START_SECONDS = 300.0  # an import of torch on a busy machine; one that fails is seen at once
GRACE_SECONDS = 0.5
STACK_SECONDS = 5.0  # only a process that cannot print, and is not stopped, takes them all
LOG_BYTES = 8192
STARTS = ("fork", "spawn", "forkserver")  # how a rank's process may begin (fabric/crew.py)
_BEGIN = "import sys; sys.path[:] = {path!r}; from harness.zygote import main; main({fd})"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that an operation (from one to the rank's next), a plan and a hunt may take."""

    operation: float = 10.0
    plan: float = 60.0
    hunt: float = float("inf")

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise UsageError(
                    f"{name} limit of {getattr(self, name)!r} s: seconds, more than 0, are due"
                )


class Deadline:
    """The first of the limits to expire. `passed` begins the next operation; a plan begins with it."""

    def __init__(self, limits: Limits, hunt_ends: float = float("inf")) -> None:
        self._limits = limits
        start = now()
        self._plan_ends = start + limits.plan
        self._hunt_ends = hunt_ends
        self._operation_ends = start + limits.operation

    def passed(self) -> None:
        """An operation has ended: the next one has its whole time."""
        self._operation_ends = now() + self._limits.operation

    def left(self) -> float:
        """Seconds to the first expiry; 0 or less once it has come."""
        return min(self._operation_ends, self._plan_ends, self._hunt_ends) - now()

    def expired(self) -> str:
        """`operation limit of 10 s`: which limit expires first, in words."""
        ends = {
            "operation": (self._operation_ends, self._limits.operation),
            "plan": (self._plan_ends, self._limits.plan),
            "hunt": (self._hunt_ends, self._limits.hunt),
        }
        name = min(ends, key=lambda name: ends[name][0])
        return f"{name} limit of {ends[name][1]:g} s"


class Ending(msgspec.Struct, frozen=True):
    """How a process ended. code: its exit code, or minus the signal. log: the end of what it printed."""

    code: int
    log: str = ""

    def __str__(self) -> str:
        if self.code >= 0:
            name = ""
            with contextlib.suppress(ValueError):
                name = f" (as a shell says {signal.Signals(self.code - 128).name})"
            return f"the process ended with exit code {self.code}{name if self.code > 128 else ''}"
        try:
            return f"the process was killed by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"the process was killed by signal {-self.code}"


class Zygote:
    """The process that forks this harness's children (harness/zygote.py), seen from here."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise UsageError(f"processes of their own need Linux; this is {sys.platform}")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            begin = _BEGIN.format(path=sys.path, fd=theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-c", begin], pass_fds=[theirs.fileno()], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )
        self.owner = os.getpid()
        self._control = ours
        ours.settimeout(START_SECONDS)
        self.folder = self._received().decode()
        self._folders = 0
        self._preloaded: set[str] = set()

    def _received(self) -> bytes:
        try:
            data = self._control.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            raise EngineError("the process that starts subjects and ranks is gone")
        return data

    def _ask(self, what: str, value: Any, fds: Sequence[int] = ()) -> int:
        with contextlib.suppress(OSError):
            socket.send_fds(self._control, [msgspec.msgpack.encode([what, value])], fds)
        told: int = msgspec.msgpack.decode(self._received())
        return told

    def start(self, entry: str, value: Any, fds: Sequence[int]) -> int:
        """The process id of a new child, which calls `entry` (`module:function`) with `value` and all
        of `fds` but the last, into which it prints."""
        return self._ask("start", [entry, value, sys.path], fds)

    def reap(self, pid: int) -> int:
        """How a child ended, as subprocess.Popen.returncode says it; it is killed if it has not soon."""
        return self._ask("reap", pid)

    def preload(self, modules: Sequence[str]) -> None:
        """Import modules where children are forked; they must not start threads."""
        for name in modules:
            if name not in self._preloaded:
                self._preloaded.add(name)
                with contextlib.suppress(OSError):
                    self._control.send(msgspec.msgpack.encode(["import", name]))
                self._received()

    def new_folder(self) -> str:
        """A fresh empty folder, gone when the harness is."""
        self._folders += 1
        path = os.path.join(self.folder, f"folder-{self._folders}")
        os.mkdir(path)
        return path

    def ended(self) -> bool:
        """Whether it is gone, against its habit."""
        return self.owner == os.getpid() and self._process.poll() is not None

    def let_go(self) -> None:
        """In a fork of the harness: keep nothing open by which it sees that the harness is gone."""
        self._control.close()

    def close(self) -> None:
        """Let it kill its children, tidy up and end."""
        global _zygote
        self._control.close()
        if self.owner == os.getpid():
            self._process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)  # where it was killed itself
        _zygote = None


_zygote: Zygote | None = None


def zygote() -> Zygote:
    """The harness's own, started when it is first needed."""
    global _zygote
    if _zygote is not None and _zygote.ended():
        _zygote.close()
    if _zygote is None or _zygote.owner != os.getpid():
        _zygote = Zygote()
        atexit.register(_zygote.close)
    return _zygote


class Child:
    """One process that the harness watches. log: a descriptor that takes what it prints."""

    def __init__(self, pid: int, log: int, reap_with: Callable[[int], int]) -> None:
        self.pid = pid
        self.log = log
        self.ending: Ending | None = None
        self._reap = reap_with
        self.pidfd = -1
        with contextlib.suppress(ProcessLookupError):
            self.pidfd = os.pidfd_open(pid)

    def ended(self, within: float = 0.0) -> Ending | None:
        """How it ended, once it has; None if it still runs after so many seconds."""
        if self.ending is None:
            if self.pidfd >= 0:
                poll = select.poll()
                poll.register(self.pidfd, select.POLLIN)
                if not poll.poll(within * 1000):
                    return None
            self.ending = self._gone()
        return self.ending

    def _gone(self) -> Ending:
        code = self._reap(self.pid)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        return Ending(code, self.printed())

    def printed(self, since: int = 0) -> str:
        """The end of what it printed after byte `since` of its log."""
        size = os.fstat(self.log).st_size
        at = max(since, size - LOG_BYTES)
        return os.pread(self.log, LOG_BYTES, at).decode(errors="replace").strip()

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.ending is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, grace: float = GRACE_SECONDS) -> Ending:
        """SIGTERM (and SIGCONT, for a stopped one); after `grace` seconds SIGKILL for its group."""
        if grace > 0 and self.ended() is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            self.ended(within=grace)
        if self.ending is None:
            kill(self.pid)
            self.ending = self._gone()
        return self.ending

    def close(self) -> None:
        """End it at once, if it still runs, and let go of its log."""
        self.stop(grace=0)
        if self.log >= 0:
            os.close(self.log)
            self.log = -1


def stacks(children: Sequence[Child], within: float = STACK_SECONDS) -> list[str]:
    """The Python stacks of each child's threads as they stand now, in the given order, all taken at
    once; what could not be taken is said instead."""
    before = [os.fstat(child.log).st_size for child in children]
    for child in children:
        child.signal(signal.SIGUSR1)
    until = now() + within
    while any(map(_to_print, children, before)) and now() < until:
        nap(0.005)
    found = []
    for child, size in zip(children, before, strict=True):
        text = child.printed(size)
        if child.ending is not None:
            text = str(child.ending)
        found.append(text or f"no stack within {within:g} s: {_state(child.pid)}")
    return found


def _to_print(child: Child, size: int) -> bool:
    """Whether its stacks have yet to come, or to come whole. size: of its log before it was asked."""
    if child.ended() is not None or state(child.pid) == "T":
        return False
    return os.fstat(child.log).st_size == size or _handles(child.pid, signal.SIGUSR1)


def _handles(pid: int, number: int) -> bool:
    """Whether a process's first thread is in its handler of the signal, which is blocked there, or has
    not come to it."""
    held = 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(("SigPnd:", "ShdPnd:", "SigBlk:")):
                held |= int(line.split()[1], 16)
    return bool(held >> (number - 1) & 1)


def state(pid: int) -> str:
    """The kernel's letter for what a process does (proc(5)): "T" = stopped; "" = it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _state(pid: int) -> str:
    """What the kernel says of a process that does not answer."""
    letter = state(pid)
    return {
        "": "the process is gone", "T": "the process is stopped (SIGSTOP)",
        "D": "it waits inside the kernel",
    }.get(letter, f"its state is {letter}")


def supervised(entry: str, value: Any, fds: Sequence[int] = ()) -> Child:
    """A child that calls `entry` (`module:function`) with `value` and copies of `fds`, forked by the
    zygote; several may be started before one is waited for."""
    log = os.memfd_create("rankfault-log")
    source = zygote()
    return Child(source.start(entry, value, [*fds, log]), log, source.reap)


def forked(body: Callable[[], None]) -> Child:
    """A child that is a fork of this very process and calls `body`.

    For what no other process could import. A lock that another thread holds now stays locked in it.
    """
    log = os.memfd_create("rankfault-log")
    own = os.getpid()
    pid = os.fork()
    if not pid:
        if _zygote is not None:
            _zygote.let_go()
        become_child(own, log, body)
    return Child(pid, log, reap)
