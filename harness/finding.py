"""Findings, verdicts and outcomes: what checkers return and what a run amounts to.

Verdicts are ordered PASS < UNKNOWN < FAIL; the worst of several wins. Finding identity (DESIGN.md) is
(checker, kind, sorted sites): no rank, line or value, so that it survives shrinking and edits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from harness.plan import Plan
from harness.record import Run, Site

REFUSED = "refused by the program: "  # how a note begins, where a plan's arguments were

class Verdict(enum.IntEnum):
    """What a run or a hunt amounts to; the larger is the worse."""

    PASS = 0
    UNKNOWN = 1
    FAIL = 2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    message: one line: what, which rank first, which operation at which user line.
    rank: the rank to look at first (-1: the host program). sites: where, for the identity.
    evidence: lines of fact (cell, value, expected; the two accesses and the missing edge).
    cause and remedy: the likely ones. events: indexes into the record to mark in a timeline.
    traceback: of a rank that raised. consequences: lines on what followed from it.
    graph: who waits for whom, of a blocked world; lines that keep their indentation.
    """

    checker: str
    kind: str
    rank: int
    message: str
    sites: tuple[Site, ...] = ()
    evidence: tuple[str, ...] = ()
    cause: str = ""
    remedy: str = ""
    events: tuple[int, ...] = ()
    traceback: str = ""
    consequences: tuple[str, ...] = ()
    graph: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`checker/kind`, as scenarios and mutants declare what they expect."""
        return f"{self.checker}/{self.kind}"

    @property
    def identity(self) -> str:
        """What stays the same while a plan is minimised."""
        sites = ",".join(str(site) for site in sorted(set(self.sites)))
        return f"{self.name}@{sites}" if sites else self.name


class Checker(Protocol):
    """A finished run in, findings out; pure. `name` is how findings and users call it."""

    name: str

    def check(self, run: Run) -> Iterable[Finding]:
        """The findings of this run, the most important first."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """One plan, executed and judged. notes: why a verdict is UNKNOWN."""

    plan: Plan
    run: Run
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """FAIL with findings, UNKNOWN with notes (a fault that never fired, a crashed checker)."""
        if self.findings:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.notes else Verdict.PASS

    def finds(self, identity: str) -> Finding | None:
        """The finding with this identity, if the run shows it."""
        return next((f for f in self.findings if f.identity == identity), None)
