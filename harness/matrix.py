"""The detection matrix: every mutant and declared bug fault against its scenario, judged as values.

A row is a mutant, a declared bug fault, a declared equivalent or a twin (the correct system) of one
scenario, hunted with several root seeds. What keeps a row from saying more than was seen:

- A finding counts only as trial.py says: the same plan without the bug is clean.
- A bug is caught when every root seed catches it; a miss counts as one plan more than the limit.
- A mutant has to show the declared finding in the declared world, and nothing in a smaller one. A
  fault has to show one of the declared kinds.
- An equivalent has to fire in more than half of its plans, and to change the runs that it fires in.

Rows follow from the root seeds and limits alone, but for their `seconds`. Not covered: pairs of a
scenario and a bug fault that the scenario does not declare. Smaller worlds are searched with one root
seed and fewer plans, so `smallest_ranks` is what was seen, not proven.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from harness import registry
from harness.ambient import now
from harness.errors import RankfaultError, one_line
from harness.scenario import Scenario
from harness.trial import BeforePlan, Case, Declared, Hunted, Kind, Limits, Shrunk, Trial

EQUIVALENT = "equivalent"
Status = Literal[
    "survived", "false_alarm", "misdeclared", "unknown", "not_run", "caught", "equivalent", "clean"
]
STATUSES: tuple[Status, ...] = (
    "survived", "false_alarm", "misdeclared", "unknown", "not_run", "caught", "equivalent", "clean"
)  # the worst first
FAILING: tuple[Status, ...] = ("survived", "false_alarm", "misdeclared")
UNPROVEN: tuple[Status, ...] = ("unknown", "not_run")
KINDS: tuple[Kind, ...] = ("mutant", "fault", "equivalent", "twin")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One case and what was seen of it.

    declared: findings as `checker/kind` (an equivalent's reason). found: hunts by finding, those that
    count. plans: of each root seed's hunt to detection. fired: in how many plans, by fault.
    """

    kind: Kind
    scenario: str
    name: str
    status: Status
    reason: str = ""
    declared: tuple[str, ...] = ()
    declared_ranks: int | None = None
    root_seeds: tuple[int, ...] = ()
    plans_max: int = 0
    found: dict[str, int] = {}
    plans: tuple[int, ...] = ()
    median: float | None = None
    percentile95: int | None = None
    missed: tuple[int, ...] = ()
    smallest_ranks: int | None = None
    shrunk: Shrunk | None = None
    plans_run: int = 0
    distinct_runs: int = 0
    fired: dict[str, int] = {}
    seconds: float = 0.0


def percentile95(counts: Iterable[int]) -> int:
    """The 95th percentile by nearest rank: the smallest count that 95 % do not exceed."""
    ordered = sorted(counts)
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


def cases(scenarios: Iterable[Scenario]) -> list[Case]:
    """Every case of the matrix of `scenarios`."""
    found = []
    for one in scenarios:
        found.append(Case("twin", one.name))
        found += [Case("mutant", one.name, name) for name in sorted(one.mutants)]
        found += [
            Case("equivalent" if _is_equivalent(expected) else "fault", one.name, name)
            for name, expected in sorted(one.bug_faults.items())
        ]
    return found


def _is_equivalent(expected: str) -> bool:
    return expected.split(":")[0].strip() == EQUIVALENT


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows as they are reported: the worst first, then by scenario, kind and name."""
    return sorted(
        rows, key=lambda r: (STATUSES.index(r.status), r.scenario, KINDS.index(r.kind), r.name)
    )


def not_run(case: Case, reason: str, status: Status = "not_run") -> Row:
    """The row of a case that was not judged."""
    return Row(kind=case.kind, scenario=case.scenario, name=case.name, status=status, reason=reason)


def row_of(
    case: Case, scenario: Scenario, limits: Limits, before_plan: BeforePlan | None = None,
    stop: type[BaseException] = KeyboardInterrupt,
) -> Row:
    """Hunt one case and judge what is seen. before_plan: called before each plan of a hunt.

    stop: what the caller's scenario raises to end it all. A case that cannot be hunted is an unknown
    row that says why.
    """
    started = now()
    try:
        row = _JUDGES[case.kind](Trial(case, scenario, limits, before_plan))
    except RankfaultError as error:
        row = not_run(case, one_line(error), "unknown")
    except (Exception, KeyboardInterrupt, stop):
        raise
    except BaseException as error:  # sys.exit outside of ranks, asyncio.CancelledError
        told = f"the program raised {one_line(error)}, which is no Exception"
        row = not_run(case, told, "unknown")
    return msgspec.structs.replace(row, seconds=round(now() - started, 3))


def row_by_name(case: Case, limits: Limits) -> Row:
    """The same in another process, where the scenario has to be found first."""
    try:
        scenario = registry.find(case.scenario)
    except RankfaultError as error:
        return not_run(case, one_line(error), "unknown")
    return row_of(case, scenario, limits)


def _row(trial: Trial, status: Status, reason: str = "", **known: Any) -> Row:
    """The row of a trial, with what its hunts amount to."""
    case, limits = trial.case, trial.limits
    return Row(
        kind=case.kind, scenario=case.scenario, name=case.name, status=status, reason=reason,
        root_seeds=limits.root_seeds, plans_max=limits.plans_max, plans_run=trial.plans_run,
        distinct_runs=len(trial.identities), fired=dict(sorted(trial.fired.items())), **known,
    )


def _mutant(trial: Trial) -> Row:
    """Free hunts, the declared finding in the declared world, then smaller worlds."""
    mutant = trial.scenario.mutants[trial.case.name]
    declared = tuple(mutant.expects.split("|"))
    roots = trial.limits.root_seeds
    low, high = trial.scenario.ranks
    hunts = [trial.hunted(root) for root in roots]
    there = trial.in_worlds([mutant.ranks], roots, until=Declared(names=declared))
    below = trial.in_worlds(range(low, mutant.ranks))
    problems = []
    if below is not None and below.finding is not None:
        problems.append(
            f"{below.finding.name} shows in a world of {below.ranks}, declared is {mutant.ranks}"
        )
    if there is None:
        told = f"{' or '.join(declared)} does not show in a world of {mutant.ranks}"
        problems.append(told if mutant.ranks <= high else f"{told}, which is larger than {high}")
    smallest = below or there or trial.in_worlds(range(mutant.ranks, high + 1))
    as_declared = [one for one in hunts if one.finding and one.finding.name in declared]
    others = [one for one in (there, *hunts) if one]
    shown = [one for one in as_declared if one.caught] or [one for one in others if one.caught]
    best = min(shown, key=_deviations, default=None)
    return _of_bug(trial, hunts, problems, smallest, best, declared, mutant.ranks)


def _deviations(hunted: Hunted) -> int:
    """How many there are to shrink."""
    return len(hunted.outcome.plan.schedule) if hunted.outcome else 0


def _fault(trial: Trial) -> Row:
    """Free hunts, whose findings must be declared ones, then the smallest world."""
    declared = tuple(trial.scenario.bug_faults[trial.case.name].split("|"))
    hunts = [trial.hunted(root) for root in trial.limits.root_seeds]
    caught = [one for one in hunts if one.caught]
    others = sorted(set(_found(caught)) - set(declared))
    problems = [f"{' and '.join(others)}: not declared"] if others else []
    low, high = trial.scenario.ranks
    smallest = trial.in_worlds(range(low, high + 1)) if caught else None
    best = smallest or next(iter(caught), None)
    return _of_bug(trial, hunts, problems, smallest, best, declared, None)


def _of_bug(
    trial: Trial, hunts: Sequence[Hunted], problems: Sequence[str], smallest: Hunted | None,
    best: Hunted | None, declared: tuple[str, ...], ranks: int | None,
) -> Row:
    """The row of a mutant or fault. best: the hunt whose finding is shrunk."""
    caught = [one for one in hunts if one.caught]
    missed = [one for one in hunts if not one.caught]
    plans = tuple(one.plans if one.caught else trial.limits.plans_max + 1 for one in hunts)
    told = list(problems)
    shrunk = None
    if best is not None:
        shrunk, control = trial.shrunk(best)
        if control is not None:
            told.append(f"its smallest plan shows {control.name} without the bug as well")
    status: Status = "misdeclared" if told else "caught"
    if missed:
        never = trial.case.kind == "fault" and not trial.fired[trial.case.name]
        status = "unknown" if never else "survived"
        told.insert(0, _why_missed(trial, missed))
    elif trial.notes:  # a checker that failed might have said something else
        status = "unknown"
        told += _notes(trial)
    return _row(
        trial, status, "; ".join(told), declared=declared, declared_ranks=ranks,
        found=_found(caught), plans=plans, median=statistics.median(plans),
        percentile95=percentile95(plans), missed=tuple(one.root for one in missed),
        smallest_ranks=smallest.ranks if smallest else None, shrunk=shrunk,
    )


def _why_missed(trial: Trial, missed: Sequence[Hunted]) -> str:
    seeds = ", ".join(str(one.root) for one in missed)
    total = len(trial.limits.root_seeds)
    told = f"missed by {len(missed)} of {counted(total, 'root seed')} ({seeds})"
    doubts = dict.fromkeys(
        f"{one.finding.name} does not count: {one.doubt}" for one in missed if one.finding
    )
    if doubts:
        return "; ".join((told, *doubts))
    if trial.case.kind == "fault" and not trial.fired[trial.case.name]:
        return f"{told}: the fault never fired"
    if trial.case.kind == "mutant" and not trial.is_called():
        return f"{told}: its code is never called"
    return "; ".join(
        (f"{told}: nothing shows in {counted(trial.limits.plans_max, 'plan')}", *_notes(trial))
    )


def _equivalent(trial: Trial) -> Row:
    """Hunts that must find nothing although the fault fires and changes the runs."""
    name = trial.case.name
    known: dict[str, Any] = {"declared": (trial.scenario.bug_faults[name],)}
    hunts = [trial.hunted(root) for root in trial.limits.root_seeds]
    found = [one for one in hunts if one.finding is not None]
    if found:
        first = next((one for one in found if one.caught), found[0])
        known.update(found=_found(found), shrunk=trial.shrunk(first)[0])
        if first.caught:
            return _row(trial, "misdeclared", f"not equivalent: {_told(first)}", **known)
        return _row(trial, "false_alarm", f"{_told(first)}; {first.doubt}", **known)
    fired, plans = trial.fired[name], trial.plans_run
    if fired * 2 <= plans:
        told = f"verifies nothing: it fired in {fired} of {counted(plans, 'plan')}"
        return _row(trial, "unknown", told, **known)
    if not trial.changes_runs():
        told = f"verifies nothing: it changes no run of {counted(len(trial.sample), 'plan')}"
        return _row(trial, "unknown", told, **known)
    return _silent(trial, "equivalent", **known)


def _twin(trial: Trial) -> Row:
    """Hunts with what the world does to a correct program, which must find nothing."""
    hunts = [trial.hunted(root) for root in trial.limits.root_seeds]
    found = [one for one in hunts if one.finding is not None]
    if not found:
        return _silent(trial, "clean")
    first = found[0]
    told = f"{_told(first)}, without a planted bug"
    return _row(
        trial, "false_alarm", f"{told}; {first.doubt}" if first.doubt else told,
        found=_found(found), shrunk=trial.shrunk(first)[0],
    )


_JUDGES = {"mutant": _mutant, "fault": _fault, "equivalent": _equivalent, "twin": _twin}


def _silent(trial: Trial, status: Status, **known: Any) -> Row:
    """Nothing found: good, unless a checker failed."""
    notes = _notes(trial)
    return _row(trial, "unknown" if notes else status, "; ".join(notes), **known)


def _notes(trial: Trial) -> list[str]:
    return [f"{note} ({counted(count, 'time')})" for note, count in sorted(trial.notes.items())]


def _found(hunts: Iterable[Hunted]) -> dict[str, int]:
    """Hunts by finding, the most frequent first."""
    names = sorted(one.finding.name for one in hunts if one.finding)
    return dict(Counter(names).most_common())


def _told(hunted: Hunted) -> str:
    assert hunted.finding is not None
    plans = counted(hunted.plans, "plan")
    return f"{hunted.finding.name} after {plans}, root seed {hunted.root}"


def counted(count: int, word: str) -> str:
    """`1 plan`, `2 plans`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
