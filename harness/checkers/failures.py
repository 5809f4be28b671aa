"""What raised first, and what followed: the one finding of a run in which a program raised.

The first failure in the order of events is the finding; its class says which checker gives it.
Later failures and lanes that never ended are its consequences. Survivors of a crash that end with
PeerLost, or with an error of their own that came of it, are no failures, nor are those that have been
told of the loss and end themselves with an exit code: that is what a launcher looks at.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable
from types import CodeType

from harness.checkers.wording import cell_of, finding
from harness.errors import NoSchedulingPoint, PeerLost, PldRuleError, RankExited, UseAfterFree, one_line
from harness.finding import Finding
from harness.record import Blocked, Failure, Run, place, site_of

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")
)


def checker_of(failure: Failure) -> str:
    """The checker that reports this failure."""
    if isinstance(failure.error, UseAfterFree):
        return "lifetime"
    if isinstance(failure.error, NoSchedulingPoint):
        return "progress"
    return "pld" if isinstance(failure.error, PldRuleError) else "exceptions"


def real_failures(run: Run) -> list[Failure]:
    """The failures of a run, without clean ends of a crash's survivors."""
    return [failure for failure in run.failures if not _follows_loss(run, failure)]


def _follows_loss(run: Run, failure: Failure) -> bool:
    error: BaseException | None = failure.error
    if isinstance(error, RankExited) and error.code > 0:
        return bool(run.dead) and any(
            event[1] in ("peer_lost", "expired") and event[3] == failure.rank
            for event in run.raw[: failure.clock]
        )
    while error is not None:
        if isinstance(error, PeerLost):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def first_failure(run: Run, checker: str) -> Iterable[Finding]:
    """The finding of the first failure, if it is `checker`'s to report."""
    if not run.failures:
        return
    failures = real_failures(run)
    if not failures or checker_of(failures[0]) != checker:
        return
    first = failures[0]
    code, lasti, operation = where(first)
    who = "host program" if first.lane < 0 else run.lane_name(first.lane)
    kind = (
        first.error.rule if isinstance(first.error, PldRuleError)
        else snake_case(type(first.error).__name__)
    )
    text = _text(first)
    deed = "raised"
    if isinstance(first.error, NoSchedulingPoint):
        deed, text = "reached no scheduling point", text or "it was looping when it was stopped"
    yield finding(
        checker, kind, first.rank, f"{who} {deed} at {place(code, lasti)}: {text}",
        sites=(site_of(code, lasti, operation),),
        evidence=() if first.lane < 0 else (_first(run, first, operation), *of_threads(run)),
        events=() if first.lane < 0 else _raised_at(run, first),
        traceback=first.traceback if first.lane >= 0 else _of_host(first.error),
        consequences=[*_later(run, first, failures[1:]), *_stuck(run)],
    )


def _text(failure: Failure) -> str:
    """What the error says, without who and where, which stand in front of it already."""
    who = "host: " if failure.rank < 0 else f"rank {failure.rank}: "
    return one_line(failure.error).removeprefix(who).removeprefix(f"{place(*where(failure)[:2])}: ")


def _first(run: Run, failure: Failure, operation: str) -> str:
    """`it raised in put, at event 33`; when others raised too: that it was the first."""
    called = "in its own code" if operation == "raise" else f"in {operation}"
    others = len(run.failures) > 1
    who = f"{run.lane_name(failure.lane)} was the first to raise," if others else "it raised"
    return f"{who} {called}, at event {failure.clock}"


def _of_host(error: BaseException) -> str:
    """The traceback of a host program without the harness's own frames, as ranks' tracebacks are."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PACKAGE)
    ]
    return "".join(traceback.format_list(frames)) + "".join(
        traceback.format_exception_only(error)
    )


def _raised_at(run: Run, failure: Failure) -> tuple[int, ...]:
    index = failure.clock
    return (index,) if index < len(run.raw) and run.raw[index][1] == "raise" else ()


def aftermath(run: Run) -> list[str]:
    """What followed from something that is no rank's own failure: each failure, then each standstill."""
    raised = [
        f"after it: {run.lane_name(failure.lane)} raised at {place(*where(failure)[:2])}: "
        + _text(failure)
        for failure in real_failures(run) if failure.lane >= 0
    ]
    return raised + _stuck(run)


def _later(run: Run, first: Failure, others: list[Failure]) -> list[str]:
    lines = []
    for failure in others:
        code, lasti, _ = where(failure)
        same = where(first)[:2] == (code, lasti) and type(failure.error) is type(first.error)
        lines.append(
            f"{'the same' if same else 'after it'}: {run.lane_name(failure.lane)} raised at "
            f"{place(code, lasti)}: {_text(failure)}"
        )
    return lines


def of_threads(run: Run) -> list[str]:
    """What threads of a program have raised, which ended nothing but themselves."""
    return [f"{run.lane_name(lane)} {raised}" for lane, raised in sorted(run.raised.items())]


def _stuck(run: Run) -> list[str]:
    lines = [f"after it: {run.lane_name(b.lane)} {stuck_at(run, b)}" for b in run.blocked]
    return lines + [f"after it: {run.lane_name(b.lane)} polls for ever" for b in run.livelock]


def stuck_at(run: Run, blocked: Blocked) -> str:
    """`is blocked in wait at file.py:3 in f: 'sig'[0] = 0, awaited >= 1`."""
    if blocked.kind == "lock":
        at = f" at {place(blocked.code, blocked.lasti)}" if blocked.code is not None else ""
        return f"waits in {blocked.detail}{at}"
    if blocked.code is None:
        return f"was stopped before its next {blocked.kind}"
    what = blocked.detail.split()[0] if blocked.kind == "work" else blocked.kind
    text = f"is blocked in {what} at {place(blocked.code, blocked.lasti)}"
    if blocked.kind == "wait":
        return f"{text}: {cell_of(run, blocked)}"
    if blocked.compare == ">=":
        of = f" of group {list(blocked.group)}" if blocked.group else ""
        return f"{text}: {blocked.value} of {blocked.expected} ranks{of} arrived"
    return text


def where(failure: Failure) -> tuple[CodeType | None, int, str]:
    """The user's frame that raised (code, instruction) and the operation it had called.

    The innermost frame outside the harness and outside installed libraries; the operation is the
    harness function it called next, or `raise` when the program raised by itself.
    """
    step = failure.error.__traceback__
    if step is None and failure.operation:  # it came from another process, which said where
        return failure.code, failure.lasti, failure.operation
    found: tuple[CodeType | None, int, str] = (failure.code, failure.lasti, "raise")
    fresh = fresh_once = False
    while step is not None:
        code = step.tb_frame.f_code
        inside = code.co_filename.startswith(_PACKAGE)
        if not inside and not code.co_filename.startswith(_LIBRARIES):
            found, fresh, fresh_once = (code, step.tb_lasti, "raise"), True, True
        elif inside and fresh:
            found, fresh = (found[0], found[1], code.co_name.strip("_")), False
        step = step.tb_next
    if not fresh_once and isinstance(failure.error, PldRuleError) and failure.error.at[0] is not None:
        return (*failure.error.at, "raise")
    return found


def snake_case(name: str) -> str:
    """`OutOfBounds` → `out_of_bounds`, `OSError` → `os_error`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


__all__ = [
    "aftermath", "checker_of", "first_failure", "real_failures", "snake_case", "stuck_at", "where"
]
