"""Whether all ranks make the same collective calls in the same order.

Modelled: window, sync and barrier calls, group by group; the first index at which two members'
sequences differ. A barrier is quiet plus sync, so the two may meet. A window's name, shape and dtype
must agree. Not a finding: a sequence that is shorter because its rank is blocked, raised or died.
Not modelled: the order of calls that several lanes of one rank make (they are compared sorted), and
the order of calls for different groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from harness.checkers.failures import real_failures
from harness.checkers.wording import finding, ranks, unreturned
from harness.finding import Finding
from harness.record import Call, Run, place, site_of


class Matching:
    """Kinds: different_call, missing_call."""

    name = "matching"

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding, for the first index that differs."""
        first = run.calls[0] if run.calls else []
        if all(calls == first for calls in run.calls):
            return ()
        groups = {call[4] for calls in run.calls for call in calls}
        found = (self._compare(run, group) for group in sorted(groups, key=_wide_first))
        return next((findings for findings in map(list, found) if findings), ())

    def _compare(self, run: Run, group: tuple[int, ...]) -> Iterable[Finding]:
        returned = set(range(run.ranks)) - set(unreturned(run))
        raised = {failure.rank for failure in real_failures(run)}
        members = group or range(run.ranks)
        by_rank = {r: [call for call in run.calls[r] if call[4] == group] for r in members}
        if any(len({call[5] for call in calls}) > 1 for calls in by_rank.values()):
            by_rank = {r: sorted(calls, key=_what) for r, calls in by_rank.items()}
        for index in range(max(map(len, by_rank.values()))):
            made = {r: calls[index] for r, calls in by_rank.items() if index < len(calls)}
            kinds = Counter(_what(call) for call in made.values())
            if len(kinds) > 1:
                yield self._different(index, made, kinds)
                return
            missing = sorted((returned & set(members)) - set(made) - raised)
            if missing:
                yield self._missing(by_rank, index, made, missing)
                return

    def _different(
        self, index: int, made: dict[int, Call], kinds: Counter[tuple[str, str]]
    ) -> Finding:
        """Ranks whose call is the rarer one come first (on a tie: the higher rank)."""
        usual = max(kinds, key=lambda kind: (kinds[kind], -_first(made, kind)))
        odd = min(rank for rank, call in made.items() if _what(call) != usual)
        other = _first(made, usual)
        lines = [
            f"call {index}: {ranks(r for r, c in made.items() if _what(c) == kind)}: "
            f"{_text(made[_first(made, kind)])}"
            for kind in kinds
        ]
        return finding(
            self.name, "different_call", odd,
            f"rank {odd}'s collective call {index} is {_text(made[odd])}, but rank {other}'s is "
            f"{_text(made[other])}",
            sites=(_site(made[odd]), _site(made[other])), evidence=lines,
        )

    def _missing(
        self, by_rank: dict[int, list[Call]], index: int, made: dict[int, Call], missing: list[int]
    ) -> Finding:
        caller = min(made)
        counts = [
            f"rank {r} made {len(calls)} collective calls" for r, calls in by_rank.items()
        ]
        return finding(
            self.name, "missing_call", missing[0],
            f"{ranks(missing)} returned without collective call {index}, which "
            f"{ranks(sorted(made))} made: {_text(made[caller])}",
            sites=(_site(made[caller]),), evidence=counts,
        )


def _wide_first(group: tuple[int, ...]) -> tuple[bool, tuple[int, ...]]:
    return bool(group), group


def _what(call: Call) -> tuple[str, str]:
    return ("sync" if call[0] == "barrier" else call[0], call[1])


def _first(made: dict[int, Call], kind: Any) -> int:
    return min(rank for rank, call in made.items() if _what(call) == kind)


def _text(call: Call) -> str:
    what = ", ".join(filter(None, (call[1], f"group={list(call[4])}" if call[4] else "")))
    return f"{call[0]}({what}) at {place(call[2], call[3])}"


def _site(call: Call) -> Any:
    return site_of(call[2], call[3], call[0])
