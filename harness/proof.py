"""The bounded exhaustive check behind the word *proven*: is there a smaller plan with the finding?

Smaller programs are the same one with fewer ranks, with params one step smaller (a sequence one
element shorter; a number at 0, at 1, halved or one less), or with one fault fewer. Each of them is
run under every schedule of up to as many deviations as the plan at hand has (at least one), and
the plan's own program under every schedule of fewer.

Every schedule means: each Hold of each operation with each `until` that makes a difference, each
Preempt of each contested point to each other owner. An `until` makes none beyond the operation's
last legal moment, which the run with until=0 tells; a `to` makes none beyond the last other owner,
which the run tells by repeating itself. Operations and points that only exist once another
deviation took effect are counted in the run with that deviation.

Smaller programs of a plan with a crash come with each crash of their run, up to the minimiser's limits,
and the plan's own program with each one that is simpler.

Not covered: params more than one step away, a fault at another place than in the plan at hand (one
of a rank that is gone moves to the last rank).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from harness.finding import Outcome
from harness.plan import Deviation, Hold, Plan, Preempt
from harness.record import RawEvent, Run

PROOF_RUNS_MAX = 20_000
replace = msgspec.structs.replace

# Runs a plan: its outcome (None when it cannot run) and whether it has the finding.
Attempt = Callable[[Plan], tuple[Outcome | None, bool]]


@dataclass(frozen=True, slots=True)
class Proof:
    """smaller: a smaller plan's outcome that has the finding, or None. proven: there is none."""

    why: str
    proven: bool = False
    smaller: Outcome | None = None


class _Found(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class _TooMany(Exception):
    """More plans than PROOF_RUNS_MAX."""


def prove(best: Plan, programs: list[Plan], attempt: Attempt) -> Proof:
    """Look for a smaller plan than `best`; `programs` are its smaller programs."""
    limit = max(len(best.schedule), 1)
    check = _Check(attempt)
    try:
        if best.schedule:
            check.program(best, len(best.schedule) - 1)
        for program in programs:
            check.program(program, limit)
    except _Found as found:
        return Proof("", smaller=found.outcome)
    except _TooMany:
        return Proof(f"more than {PROOF_RUNS_MAX} smaller plans; not all were tried")
    return Proof(_covered(best, programs, limit, check.tried), proven=True)


def _covered(best: Plan, programs: list[Plan], limit: int, tried: int) -> str:
    """What was tried, in words."""
    parts = []
    if best.schedule:
        parts.append("the same program with fewer deviations")
    kinds = [
        ("fewer ranks", any(p.ranks < best.ranks for p in programs)),
        ("params one step smaller", any(p.params != best.params for p in programs)),
        ("whole operations", any(p.visibility != best.visibility for p in programs)),
        ("a simpler crash", any(p.crash != best.crash for p in programs)),
        ("a fault fewer", any(len(p.faults) < len(best.faults) for p in programs)),
    ]
    named = [name for name, there in kinds if there]
    if named:
        plural = "" if limit == 1 else "s"
        parts.append(f"{' or '.join(named)} with up to {limit} deviation{plural}")
    if not parts:
        return "there is no smaller plan"
    plans = "the only smaller plan does not show it"
    if tried > 1:
        plans = f"none of the {tried:,} smaller plans shows it"
    return f"{plans} ({'; '.join(parts)})"


class _Check:
    """Runs plans, counts them, stops at the first one with the finding."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.tried = 0

    def program(self, plan: Plan, limit: int) -> None:
        """Run `plan`'s program under every schedule of up to `limit` deviations, fewest first."""
        run = self._run(replace(plan, schedule=()))
        if run is None:
            return
        if limit and self.tried + _estimate(run, limit) > PROOF_RUNS_MAX:
            raise _TooMany
        level: list[tuple[tuple[Deviation, ...], int, int]] = [((), run.operations, run.points)]
        seen: set[frozenset[Deviation]] = set()
        for _ in range(limit):
            following = []
            for schedule, operations, points in level:
                for longer, found in self._longer(plan, schedule, operations, points, seen):
                    following.append((longer, found.operations, found.points))
            level = following

    def _run(self, plan: Plan) -> Run | None:
        self.tried += 1
        if self.tried > PROOF_RUNS_MAX:
            raise _TooMany
        outcome, shows = self._attempt(plan)
        if outcome is None:
            return None
        if shows:
            raise _Found(outcome)
        return outcome.run

    def _longer(
        self, plan: Plan, schedule: tuple[Deviation, ...], operations: int, points: int,
        seen: set[frozenset[Deviation]],
    ) -> Iterator[tuple[tuple[Deviation, ...], Run]]:
        """Run every schedule of one deviation more than `schedule`."""
        held = {d.op for d in schedule if isinstance(d, Hold)}
        preempted = {d.at for d in schedule if isinstance(d, Preempt)}

        def extended(deviation: Deviation) -> Run | None:
            longer = frozenset((*schedule, deviation))
            if longer in seen:
                return None
            seen.add(longer)
            return self._run(replace(plan, schedule=(*schedule, deviation)))

        for op in range(operations):
            if op in held:
                continue
            last = extended(Hold(op))
            if last is None:
                continue
            yield (*schedule, Hold(op)), last
            for until in range(1, lateness(last.raw, op, len(last.lanes))):
                run = extended(Hold(op, until))
                if run is not None:
                    yield (*schedule, Hold(op, until)), run
        for at in range(points):
            if at in preempted:
                continue
            before: list[RawEvent] | None = None
            for to in itertools.count():
                run = extended(Preempt(at, to))
                if run is None or _same(run.raw, before):
                    break
                before = run.raw
                yield (*schedule, Preempt(at, to)), run


def _same(raw: list[RawEvent], other: list[RawEvent] | None) -> bool:
    return other is not None and [e[:6] for e in raw] == [e[:6] for e in other]


def lateness(raw: list[RawEvent], op: int, lanes: int) -> int:
    """How many events there were between the issue of `op` and its delivery (or the run's end)."""
    issued = -1
    for index, event in enumerate(raw):
        if event[7] == op:
            if event[0] >= lanes:
                return index - issued - 1
            issued = index
        elif event[1] == "signal" and event[7] == op + 1:
            issued = index  # put_signal issues its data together with its signal
    return len(raw) - issued - 1


def _estimate(run: Run, limit: int) -> int:
    """About how many schedules of up to `limit` deviations there are, from a run without any."""
    single = run.operations * (len(run.raw) // 4 + 1) + 2 * run.points
    total, choices = 0, 1
    for size in range(1, limit + 1):
        choices = choices * max(single - size + 1, 0) // size
        total += choices
    return total


__all__ = ["Proof", "prove"]
