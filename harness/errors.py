"""Every error this project raises, in one tree.

    RankfaultError
      UsageError                 the caller's mistake; the CLI prints one line and exits with 2
        UnknownName              a scenario, mutant, fault or checker that does not exist
        PlanError                a plan with a wrong field, type, range or format number
        SeedFileError            a seed file that cannot be read, or is not a seed
        UserFileError            a user's scenario file that is missing, refused or fails to import
        NotHere                  a system or a means that this machine does not have
      OperationError             a rank or host program asked for something impossible
        OutOfBounds  WrongDtype  WrongShape  WrongPeer  WrongHandle  Misaligned  NonContiguous
        UseAfterFree  DispatchError  NotShared  ThreadStarted  NoSchedulingPoint  RankExited
        CollectiveMismatch  WrongCollective  NotAMember  WrongWorld  ProcessStarted
        PldRuleError  NotSimulated
      PeerLost                   the world's answer to a rank that waits for a dead one
      Undecided                  a checker that came to no verdict
      NotYet                     a part of the interface that has its place but no body yet
      EngineError                a defect of this project

`Unwound` and `RankDied` are no errors: they derive from BaseException, so that a program's
`except Exception` cannot keep a stopped lane alive.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import CodeType


class RankfaultError(Exception):
    """Base of all errors of this project."""


class UsageError(RankfaultError):
    """Wrong input from outside; its text is one line that names the valid choices."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """A phrase that offers the nearest valid choice, or the whole list when none is near."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(known[:12]) + (f", … ({len(known)} in all)" if len(known) > 12 else "")
    return f"choose one of: {shown or 'none is registered'}"


class UnknownName(UsageError):
    """A name that is not registered; offers the nearest one."""

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        super().__init__(f"no {kind} is called {name!r}; {nearest(name, choices)}")
        self.kind = kind
        self.name = name


class PlanError(UsageError):
    """A plan that does not decode, or whose values lie outside the allowed range."""


class SeedFileError(UsageError):
    """A seed file that is missing, cut off, or of the wrong form."""


class UserFileError(UsageError):
    """A user's scenario file that is missing, refused or fails to import."""


class NotHere(UsageError):
    """A scenario that cannot run on this machine; the text says what is missing. Nothing is proven."""


class OperationError(RankfaultError):
    """An operation that no fabric could perform; names rank, operation, given and allowed."""


class OutOfBounds(OperationError):
    """A byte range outside the window, buffer or tensor it names."""


class WrongDtype(OperationError):
    """A source whose dtype differs from its destination's, or a cell that is not int32."""


class WrongShape(OperationError):
    """A shape that cannot be, such as a negative extent."""


class WrongPeer(OperationError):
    """A peer outside [0, world size)."""


class WrongGroup(OperationError):
    """A group that is none: ranks outside the world, twice, or without the caller."""


class WrongArgument(OperationError):
    """An offset that is no int, or a mode that the operation does not have."""


class WrongHandle(OperationError):
    """A window where a tensor is due, or the reverse."""


class Misaligned(OperationError):
    """A byte offset that is not a multiple of the element size."""


class NonContiguous(OperationError):
    """A strided tensor where dense bytes are due."""


class UseAfterFree(OperationError):
    """An access through a window that was freed."""


class DispatchError(OperationError):
    """A dispatch that breaks a rule: scalar before tensor, rank twice, rank never."""


class NotShared(OperationError):
    """A host tensor outside shared memory at `prepare`."""


class ThreadStarted(OperationError):
    """A rank program that starts a thread under simulation."""


class NoSchedulingPoint(OperationError):
    """A rank that ran for too long without calling any operation."""


class RankExited(OperationError):
    """A rank whose process ended before its program had. code: exit code, or minus the signal."""

    def __init__(self, rank: int, code: int, text: str = "") -> None:
        super().__init__(text or f"rank {rank}: its process ended with {code}")
        self.rank = rank
        self.code = code


class CollectiveMismatch(OperationError, RuntimeError):
    """A collective, or a message, in which the ranks do not agree; raised in each of its members."""


class WrongCollective(OperationError, RuntimeError):
    """A collective that cannot be: a destroyed group, tensors of a wrong size or dtype, unknown."""


class NotAMember(WrongCollective):
    """A collective of a group that the rank is no member of."""


class WrongWorld(OperationError):
    """A rank or world size, in the environment or an argument, that does not fit the other ranks'."""


class ProcessStarted(OperationError):
    """A rank program that starts a process under simulation."""


class NoDevice(OperationError):
    """A program of the simulated fabric, which runs on the CPU, asks for a device that is not here."""


class PldRuleError(OperationError):
    """What PyPTO's compiler or runtime would refuse, or silently get wrong, in a `pld` program.

    rule: its name, a row of diagnosis/pld_causes.py; the finding is `pld/<rule>`. at: code and
    instruction of the user's line, for where no code of the user's is running.
    """

    at: tuple[CodeType | None, int] = (None, -1)

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class NotSimulated(OperationError, AttributeError):
    """A part of PyPTO that has no counterpart here."""


class PeerLost(RankfaultError):
    """Raised in a rank that waits for what only a dead rank could do."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"rank {rank} is lost")
        self.rank = rank


class Undecided(RankfaultError):
    """Raised by a checker that came to no verdict: the outcome is UNKNOWN, the text says why."""


class Refused(RankfaultError):
    """Raised by a checker where the program itself refused the plan's arguments, by a check of its own:
    the outcome is UNKNOWN, and the plan proves nothing."""


class NotYet(RankfaultError):
    """A part of the interface that has its place but no body yet."""


class EngineError(RankfaultError):
    """A defect of this project, not of the program under test."""


class Unwound(BaseException):
    """Thrown into a lane that must end because its world has ended."""


class WaitExpired(BaseException):
    """Thrown into a lane whose wait has lasted as long as it was allowed to."""


class RankDied(BaseException):
    """Thrown into a lane that a crash fault kills."""


def one_line(error: BaseException) -> str:
    """The error's text on one line, with its type when the text alone would say too little."""
    text = " ".join(str(error).split())
    return text if isinstance(error, RankfaultError) else f"{type(error).__name__}: {text}"
