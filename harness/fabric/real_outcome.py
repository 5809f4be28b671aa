"""What became of a world of real ranks, and what of it is a finding.

An error within its limit on every survivor is a right answer to a fault, and so is a right result. A
finding is a rank that native code aborted (`aborted`), one that was still there when its limit came
(`hang`), and a rank that ended well with other results than without the fault, or although the calls of
the ranks do not belong together (`silence`). A rank that a fault hit may end by a signal.

Not modelled: what a program prints as its result must not depend on time or place; nothing else is
compared.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterator, Sequence

import msgspec

from harness.diagnosis.table import likely
from harness.finding import Finding, Verdict
from harness.frontends.torch_distributed.agreement import Disagreement, disagreement
from harness.frontends.torch_distributed.calls import Call
from harness.frontends.torch_distributed.recorded import Fired, lines
from harness.plan import Fault
from harness.record import Site

CHECKER = "process_group"
FATAL = "Fatal Python error"  # faulthandler's, before the stacks
_TELLING = re.compile(r"[\w.]*(Error|Exception|Interrupt|NotHere)\b.*|what\(\): ")


class RankOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rank's end. code: exit code, or minus the signal. order: 0 = the first of all to end badly, -1
    = it ended well. printed: its standard output; log: the end of its standard error. record: its calls,
    one line each. expired: the limit at which it was killed, with its stack then. seconds: from the
    first bad end of another rank to its own, 0 if there was none. ended: when it did, by its machine's
    clock, to some milliseconds."""

    rank: int
    code: int
    order: int = -1
    printed: str = ""
    log: str = ""
    record: str = ""
    expired: str = ""
    stack: str = ""
    seconds: float = 0.0
    ended: float = 0.0

    @property
    def calls(self) -> tuple[Call, ...]:
        """Its calls, in order."""
        return tuple(entry for entry in lines(self.record.encode()) if isinstance(entry, Call))

    @property
    def fired(self) -> tuple[int, ...]:
        """The faults, by position, that hit it, each time that they did."""
        return tuple(entry.index for entry in lines(self.record.encode()) if isinstance(entry, Fired))

    @property
    def error(self) -> str:
        """What it said last, for a rank that ended badly: the line of its exception, of native code's, or
        simply the last one of its standard error."""
        said = [line.strip() for line in self.log.splitlines() if line.strip()]
        told = [line for line in said if _TELLING.match(line)]
        fatal = [line for line in said if line.startswith(FATAL)]
        return (told or fatal or said or [""])[-1] if self.code or self.expired else ""

    def __str__(self) -> str:
        calls = self.calls
        if self.expired:
            end = f"still there at its {self.expired}, killed"
        elif self.code < 0:
            end = f"killed by {signal.Signals(-self.code).name}"
        else:
            end = f"exit code {self.code}"
        last = f"; last of {len(calls)} calls: {calls[-1]}{_where(calls[-1])}" if calls else "; no call"
        return f"rank {self.rank}: {end}{last}" + (f"\n    {self.error}" if self.error else "")


class RealOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A world's end. faults: those it ran under. subject: what was under test."""

    path: str
    ranks: tuple[RankOutcome, ...]
    faults: tuple[Fault, ...] = ()
    subject: str = ""

    @property
    def first(self) -> int | None:
        """The rank that ended badly before all others; None if none did."""
        bad = [one for one in self.ranks if one.order >= 0]
        return min(bad, key=lambda one: one.order).rank if bad else None

    @property
    def fired(self) -> tuple[int, ...]:
        """How often each fault fired."""
        hits = [index for one in self.ranks for index in one.fired]
        return tuple(hits.count(index) for index in range(len(self.faults)))

    @property
    def struck(self) -> frozenset[int]:
        """Ranks that a fault hit."""
        return frozenset(one.rank for one in self.ranks if one.fired)

    @property
    def disagreement(self) -> Disagreement | None:
        """The first collective, by sequence number, in which the ranks' calls do not belong together."""
        meetings: dict[tuple[int, str], list[Call]] = {}
        for one in self.ranks:
            for call in one.calls:
                if not call.p2p:
                    meetings.setdefault((call.seq, call.group_name), []).append(call)
        found = (disagreement(meetings[key]) for key in sorted(meetings) if len(meetings[key]) > 1)
        return next((one for one in found if one is not None), None)

    def findings(
        self, expected: Sequence[str] | None = None, unjudged: Collection[int] = ()
    ) -> tuple[Finding, ...]:
        """What is wrong, the worst first. expected: each rank's standard output without the faults.
        unjudged: ranks that are themselves to blame."""
        return tuple(one for one in _findings(self, expected, unjudged) if one.rank not in unjudged)

    def verdict(self, expected: Sequence[str] | None = None) -> Verdict:
        """FAIL with findings, UNKNOWN where a fault did not fire, else PASS."""
        if self.findings(expected):
            return Verdict.FAIL
        return Verdict.PASS if all(self.fired) else Verdict.UNKNOWN

    def __str__(self) -> str:
        """A report: a line or two for each rank, and who was first."""
        told = [f"{self.path}: {len(self.ranks)} ranks on {self.subject}"]
        told += [
            f"fault {fault.tag()} on rank {fault.rank}: fired {count} times"
            for fault, count in zip(self.faults, self.fired, strict=True)
        ]
        told += [str(one) for one in self.ranks]
        if differ := self.disagreement:
            told.append(f"the calls disagree: {_differ(differ)}")
        told.append("all ranks ended well" if self.first is None else f"first to fail: rank {self.first}")
        return "\n".join(told)


def _differ(found: Disagreement) -> str:
    sides = ", ".join(
        f"rank {call.rank}'s {call}{_where(call)}" for call in (found.odd, found.usual)
    )
    return f"{sides}: {found.text}"


def _where(call: Call) -> str:
    return "" if call.code is None else f" at {call.code.co_filename}:{call.code.co_firstlineno}"


def _findings(
    outcome: RealOutcome, expected: Sequence[str] | None, unjudged: Collection[int]
) -> Iterator[Finding]:
    named = tuple(Site(fault.tag(), getattr(fault, "call", "")) for fault in outcome.faults)
    struck = outcome.struck
    told = tuple(str(outcome).splitlines()[1:])

    def finding(kind: str, one: RankOutcome, text: str) -> Finding:
        cause, remedy = likely(f"{CHECKER}/{kind}")
        last = one.calls[-1].kind if one.calls else "start"
        return Finding(
            checker=CHECKER, kind=kind, rank=one.rank, message=f"rank {one.rank} {text}", cause=cause,
            remedy=remedy, evidence=told, sites=(Site("process_group", last), *named),
            traceback=one.stack,
        )

    for one in outcome.ranks:
        if one.rank not in struck and one.code < 0 and not one.expired:
            name = signal.Signals(-one.code).name
            yield finding("aborted", one, f"was ended by {name} instead of an error that it could handle")
    for one in outcome.ranks:
        if one.expired:
            yield finding("hang", one, f"was still there at its {one.expired}")
    for one, due in zip(outcome.ranks, expected or (), strict=bool(expected)):
        if one.code == 0 and one.printed != due and one.rank not in unjudged:
            text = f"ended well and printed {one.printed[-80:]!r}, where {due[-80:]!r} is right"
            yield finding("silence", one, text)
            return
    differ = outcome.disagreement
    if differ is not None and all(one.code == 0 for one in outcome.ranks):
        one = outcome.ranks[differ.odd.rank]
        yield finding("silence", one, f"ended well although the calls disagree: {_differ(differ)}")
