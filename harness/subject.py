"""Third-party code in a process of its own: called with a deadline, and whatever it does is an answer.

    with Subject("my_store.py::MyStore") as subject:
        subject.call("open", folder, within=5.0)      # Answer, Failed, Expired or Crashed

The object is made in the child by calling what the name means. The parent holds the deadline; at its
expiry the child's Python stacks are taken and the child is killed with all that it started. After
Expired or Crashed every further call gives the same again. Tensors that `tensor` made are the child's
memory as well; others are copied in, and what is answered is copied out. One call at a time for each
subject; several subjects may be at work at once (`begin`, `finish`).

The child dies with the harness, also when that is killed, and its folder and memory with it
(subject_child.py). Linux only. Not modelled: callbacks into the harness, tensors on devices.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from harness.ambient import nap, now
from harness.errors import UsageError
from harness.power_cut import MountedDisk
from harness.subject_wire import PAGE, Memory, receive, send
from harness.supervise import START_SECONDS, Child, Ending, stacks, supervised, zygote

MEMORY = 1 << 30  # address space; only what is touched costs memory
MEMORY_MAX = 1 << 40
WITHIN_MAX = 86_400.0
END_SECONDS = 10.0  # for a process whose socket is closed to be gone, with its own exit code


class Answer(msgspec.Struct, frozen=True):
    """The call returned `value`."""

    value: Any = None


class Failed(msgspec.Struct, frozen=True):
    """The call raised. kinds: the names of the exception's class and its bases. text: one line."""

    kinds: tuple[str, ...]
    text: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.kinds[0]}: {self.text}" if self.text else self.kinds[0]


class Expired(msgspec.Struct, frozen=True):
    """No answer within so many seconds; the child was killed. stacks: of its threads at the expiry."""

    seconds: float
    stacks: str = ""

    def __str__(self) -> str:
        return f"no answer within {self.seconds:g} s"


class Crashed(Ending, frozen=True):
    """The child ended, though nobody had asked it to."""


Reply = Answer | Failed | Expired | Crashed


class Subject:
    """One object in one process. name: `module:attribute` or `path/file.py::attribute`.

    memory: bytes at most for tensors. preload: modules that are imported once for all later subjects;
    they must not start threads. interpreter: the Python of another environment that is to run it, which
    then has nothing of this one but the project itself. mounts_of: a disk of power_cut.py whose mounts it
    shall see. Raises UsageError when the object cannot be made.
    """

    def __init__(
        self, name: str, *args: Any, memory: int = MEMORY, within: float = START_SECONDS,
        preload: Sequence[str] = (), interpreter: str = "", mounts_of: MountedDisk | None = None,
    ) -> None:
        if type(memory) is not int or not PAGE <= memory <= MEMORY_MAX:
            raise UsageError(f"memory: given {memory!r}; allowed bytes from {PAGE} to {MEMORY_MAX}")
        self.name = name
        self._child: Child | None = None
        self._ended: Expired | Crashed | None = None
        self._asked = False
        self._mark = 0
        self._within, self._deadline = within, now()
        zygote().preload(preload)
        self._link, theirs = socket.socketpair()
        try:
            with theirs:
                self._begin_process(theirs, memory)
            path, separator, attribute = name.partition("::")
            known = f"{os.path.abspath(path)}::{attribute}" if separator else name
            if mounts_of is not None:
                self._do(["mounts", mounts_of.keeper], within)
            if interpreter:
                self._do(["become", os.path.abspath(interpreter)], within)
            path_of_modules = [] if interpreter else sys.path
            self._do(["new", known, list(args), path_of_modules, os.getcwd()], within)
        except BaseException:
            self.close()
            raise

    def _do(self, request: list[Any], within: float) -> None:
        """One step on the way to the object."""
        self._ask(request, within)
        made = self.finish()
        if not isinstance(made, Answer):
            raise UsageError(f"{self.name} cannot be made: {made}")

    def _begin_process(self, theirs: socket.socket, memory: int) -> None:
        fd = os.memfd_create("rankfault-subject")
        try:
            os.ftruncate(fd, memory)
            self.memory = Memory(fd, memory)
            self._child = supervised("harness.subject_child:begin", memory, [theirs.fileno(), fd])
        finally:
            os.close(fd)

    @staticmethod
    def new_folder() -> str:
        """A fresh empty folder on the real disk (below TMPDIR), gone when the harness is."""
        return zygote().new_folder()

    def tensor(
        self, shape: Sequence[int], dtype: torch.dtype = torch.uint8, *, shift: int = 0
    ) -> torch.Tensor:
        """A tensor in memory shared with the child, `shift` bytes behind the beginning of a page."""
        return self.memory.tensor(shape, dtype, shift=shift)

    def clear(self) -> None:
        """Give all tensors of `tensor` back; neither side may use one of them any more."""
        self.memory.free = 0

    def call(self, method: str, *args: Any, within: float, **named: Any) -> Reply:
        """Call a method; the reply comes after `within` seconds at most (and what a kill takes)."""
        self.begin(method, *args, within=within, **named)
        return self.finish()

    def begin(self, method: str, *args: Any, within: float, **named: Any) -> None:
        """Begin a call whose reply `finish` gives. Raises UsageError for what cannot be sent."""
        self._ask(["call", method, list(args), named], within)

    def _ask(self, request: list[Any], within: float) -> None:
        if self._asked:
            raise UsageError(f"{self.name}: a call is at work; finish it before the next one")
        if not 0 < within <= WITHIN_MAX:
            raise UsageError(f"within: given {within!r}; allowed seconds above 0, up to {WITHIN_MAX:g}")
        self._mark = self.memory.free
        self._within, self._deadline = within, now() + within
        if self._ended is not None:
            return
        try:
            # The child's own tensors begin behind the copies that packing makes: so it packs twice.
            self.memory.pack(request)
            free = self.memory.free
            self.memory.free = self._mark
            data = self.memory.pack([*request, free])
        except (TypeError, OverflowError, ValueError, RecursionError) as error:
            self.memory.free = self._mark
            raise UsageError(f"{self.name}: {request[1]}: {error}") from None
        self._asked = True
        self._link.settimeout(within)
        try:
            send(self._link, data)
        except TimeoutError:
            self._ended = self._expire()
        except (BrokenPipeError, ConnectionResetError):
            self._ended = self._crash()

    def finish(self) -> Reply:
        """The reply to the call that was begun."""
        self._asked = False
        if self._ended is None:
            try:
                data = receive(self._link, self._deadline)
            except TimeoutError:
                self._ended = self._expire()
            else:
                if data is not None:
                    return self._reply(data)
                self._ended = self._crash()
        return self._ended

    def _reply(self, data: bytes) -> Reply:
        self.memory.free = self._mark
        what, *rest = self.memory.unpack(data)
        if what == "answer":
            return Answer(_copied(rest[0]))
        kinds, text, where = rest
        if what == "usage":
            raise UsageError(f"{self.name}: {text}")
        return Failed(tuple(kinds), text, where)

    def _expire(self) -> Expired:
        assert self._child is not None
        shown = stacks([self._child])[0]
        self._child.stop(grace=0)
        return Expired(self._within, shown)

    def _crash(self) -> Crashed:
        assert self._child is not None
        ending = self._child.ended(within=END_SECONDS) or self._child.stop(grace=0)
        return Crashed(ending.code, ending.log)

    @property
    def pid(self) -> int:
        """The child's process id; 0 once it has ended."""
        return self._child.pid if self._child is not None and self._child.ending is None else 0

    def kill(self, after: float = 0.0) -> None:
        """SIGKILL, `after` so many seconds; a call that was begun is cut off wherever it is."""
        if self._ended is None and self._child is not None:
            nap(after)
            self._child.stop(grace=0)
            self._ended = Crashed(-signal.SIGKILL)

    def close(self) -> None:
        """End the process, if it still runs. Twice is fine."""
        if self._child is not None:
            self._child.close()
        self._link.close()
        self._ended = self._ended or Crashed(0)

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _copied(value: Any) -> Any:
    """`value` with its tensors copied out of the shared memory."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list):
        return [_copied(one) for one in value]
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return value
