"""The one minimiser: from a failing plan to the smallest one that shows the same finding.

Simpler means: fewer ranks, then fewer rounds and operations (shorter sequences in params), fewer
faults, fewer deviations, earlier deviations, smaller sizes, an earlier kind of crash state (in the order
of crash_states.py). A candidate counts only if it has a
finding of the same identity (checker, kind, sites). Positions of a schedule mean something else in
another program, so a smaller world, smaller params or fewer faults are tried with the schedule as
it is, the default run, everything held, and a bounded search by the explorers. What that search
finds is taken only if it stays short.

After that proof.py runs every plan below the result, within bounds that it names. Only when it
finishes is the result called proven minimal.

`seconds` bounds the wall clock, `runs_max` the number of runs (for a result that no clock has a part
in); the best plan so far is kept. A run that has begun is not cut short.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.ambient import now
from harness.each_place import crash_plans, simpler_crashes
from harness.errors import RankfaultError
from harness.finding import Finding, Outcome
from harness.plan import EVERY, Deviation, Fault, Hold, Plan, Preempt, coarser
from harness.portfolio import data_holds
from harness.proof import prove
from harness.record import Run
from harness.run import explore, run
from harness.scenario import Scenario
from harness.schedule import PCT, POS, RandomWalk, deviations_of

SEARCH_RUNS = 48
SEARCH_RUNS_UNSCHEDULED = 12  # where the finding needed no schedule so far
# A smaller program is worth so many deviations where there were fewer: stories must be readable.
LONGEST_STORY = 3
CRASHES_MAX = 250  # of a smaller program that are tried
NTH_MAX = 4  # occurrences of a fault that are tried
PLACES_MAX = 64  # places of a fault that are tried in a smaller program
replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class Minimised:
    """The result. proven: the exhaustive check finished and found nothing smaller."""

    outcome: Outcome
    finding: Finding
    proven: bool
    runs: int
    seconds: float
    why: str  # what the proof covered, or why there is none


class _OutOfTime(RankfaultError):
    """The budget, seconds or runs, is spent; the text says which."""


class _Search:
    """One minimisation: the best outcome so far and the budget."""

    def __init__(
        self, outcome: Outcome, finding: Finding, scenario: Scenario, seconds: float,
        runs_max: int | None,
    ) -> None:
        self.best = outcome
        self.finding = finding
        self.races = finding.checker == "races"
        self.scenario = scenario
        self.started = now()
        self.seconds = seconds
        self.runs_max = runs_max
        self.runs = 0

    def _begin(self) -> None:
        if now() >= self.started + self.seconds:
            raise _OutOfTime(f"{self.seconds:g} s")
        if self.runs == self.runs_max:
            raise _OutOfTime(f"{self.runs} runs")
        self.runs += 1

    def attempt(self, plan: Plan) -> tuple[Outcome | None, bool]:
        """The outcome of `plan` (None: it cannot run) and whether it has the finding."""
        self._begin()
        try:
            outcome = run(plan, scenario=self.scenario, races=self.races)
        except RankfaultError:
            return None, False
        return outcome, outcome.finds(self.finding.identity) is not None

    def accept(self, plan: Plan) -> bool:
        """Make `plan` the best one if it has the finding."""
        outcome, shows = self.attempt(plan)
        if outcome is not None and shows:
            self.best = outcome
        return shows

    def accept_program(self, plan: Plan, searches: int = SEARCH_RUNS) -> bool:
        """The same for a plan of another program, whose schedule has to be found anew.

        searches: explored runs, once the plan as it is, the default run and everything held failed.
        """
        if plan.crash is not None:
            return any(self.accept(one) for one in crash_plans(plan, self.scenario, CRASHES_MAX))
        if plan.schedule and self.accept(plan):
            return True
        plan = replace(plan, schedule=())
        default, shows = self.attempt(plan)
        if default is None:
            return False
        if shows:
            self.best = default
            return True
        if not searches:
            return False
        holds = tuple(Hold(op) for op in range(default.run.operations))
        if holds and self.accept(replace(plan, schedule=holds)):
            return True
        if self._placed(plan, default.run, holds):
            return True
        return self._explored(plan, default.run, searches)

    def _placed(self, plan: Plan, default: Run, holds: tuple[Hold, ...]) -> bool:
        """The same with a plan's only fault at another place: its nth counts operations of the larger
        program. In the default run, and with everything held if the best plan has a schedule."""
        if len(plan.faults) != 1 or EVERY in (plan.faults[0].rank, plan.faults[0].nth):
            return False
        fault = plan.faults[0]
        schedules = [(), holds] if self.best.plan.schedule else [()]
        places = itertools.product(range(default.seen[0]), range(plan.ranks), schedules)
        for nth, rank, schedule in itertools.islice(places, PLACES_MAX):
            moved = replace(fault, rank=rank, nth=nth)
            if moved != fault and self.accept(
                replace(plan, faults=(moved,), schedule=schedule)
            ):
                return True
        return False

    def _explored(self, plan: Plan, default: Run, searches: int) -> bool:
        """Search a schedule by the explorers; take it if it is not much longer than the best."""
        before = self.best
        longest = max(len(before.plan.schedule), LONGEST_STORY)
        for seed in range(searches):
            self._begin()
            chooser = (
                PCT(1 + seed // 3 % 3, default.points, "minimise", seed), POS("minimise", seed),
                RandomWalk("minimise", seed),
            )[seed % 3]
            try:
                outcome = explore(plan, self.scenario, chooser)
                if outcome.finds(self.finding.identity) is None:
                    continue
                schedule = deviations_of(plan, self.scenario, outcome.run)
            except RankfaultError:
                return False
            try:
                if self.accept(replace(plan, schedule=schedule)):
                    _schedule(self)
            finally:  # the time may be up
                if len(self.best.plan.schedule) > longest:
                    self.best = before
            if self.best is not before:
                return True
        return False


def minimise(
    outcome: Outcome, finding: Finding, scenario: Scenario, *, seconds: float = 20.0,
    runs_max: int | None = None,
) -> Minimised:
    """The smallest plan found within the budget that has `finding`, and whether that is proven."""
    search = _Search(outcome, finding, scenario, seconds, runs_max)
    proven, why = False, ""
    try:
        while True:
            before = search.best.plan
            _whole(search)
            _ranks(search)
            _params(search, lengths=True)
            _faults(search)
            _schedule(search)
            _params(search, lengths=False)
            any(search.accept(plan) for plan in simpler_crashes(search.best.plan, scenario))
            if search.best.plan != before:
                continue
            proof = prove(search.best.plan, _programs(search), search.attempt)
            if proof.smaller is None:
                proven, why = proof.proven, proof.why
                break
            search.best = proof.smaller
    except _OutOfTime as spent:
        why = f"the budget of {spent} was spent"
    outcome = _with_races(search)
    best = outcome.finds(finding.identity)
    assert best is not None
    return Minimised(outcome, best, proven, search.runs, now() - search.started, why)


def _with_races(search: _Search) -> Outcome:
    """The best outcome, judged once more with the races that stand behind its finding."""
    best = search.best
    try:
        judged = run(best.plan, scenario=search.scenario, races=True)
    except RankfaultError:  # the program does not repeat
        return best
    return judged if judged.finds(search.finding.identity) else best


def _whole(search: _Search) -> None:
    """The same with fewer delivery switches."""
    for plan in _coarser(search.best.plan):
        if search.accept_program(plan, SEARCH_RUNS_UNSCHEDULED):
            return


def _coarser(plan: Plan) -> list[Plan]:
    """The plan with fewer delivery switches."""
    return [replace(plan, visibility=seen) for seen in coarser(plan.visibility)]


def _in_world(plan: Plan, ranks: int) -> Plan:
    """`plan` with fewer ranks; faults of ranks that are gone move to the last one."""
    faults = tuple(replace(f, rank=min(f.rank, ranks - 1)) for f in plan.faults)
    return replace(plan, ranks=ranks, faults=faults)


def _ranks(search: _Search) -> None:
    searches = SEARCH_RUNS if search.best.plan.schedule else SEARCH_RUNS_UNSCHEDULED
    for ranks in range(search.scenario.ranks[0], search.best.plan.ranks):
        if search.accept_program(_in_world(search.best.plan, ranks), searches):
            return


def _params(search: _Search, *, lengths: bool) -> None:
    """Shorten the sequences in params, or lower its numbers, as long as that works."""
    progress = True
    while progress:
        progress = False
        plan = search.best.plan
        for params in _simpler(plan, search.scenario, lengths=lengths):
            searches = SEARCH_RUNS if plan.schedule else 0
            if search.accept_program(replace(plan, params=params), searches):
                progress = True
                break


def _simpler(plan: Plan, scenario: Scenario, *, lengths: bool) -> Iterator[Any]:
    """Other params, one step simpler, without a change of those that are the user's."""
    data = msgspec.to_builtins(plan.params)
    free = {name: value for name, value in data.items() if name not in scenario.given}
    for smaller in _smaller(free, lengths=lengths):
        params = _valid({**data, **smaller}, type(plan.params))
        if params is not None and params != plan.params:
            yield params


def _valid(data: Any, struct: type[Any]) -> Any:
    try:
        return msgspec.convert(data, struct, strict=True)
    except msgspec.ValidationError:
        return None


def _smaller(data: Any, *, lengths: bool) -> Iterator[Any]:
    """Plain data one step simpler, the boldest step first."""
    if isinstance(data, dict):
        for key, value in data.items():
            for smaller in _smaller(value, lengths=lengths):
                yield {**data, key: smaller}
    elif isinstance(data, list | tuple):
        if lengths:
            for index in range(len(data)):
                yield [*data[:index], *data[index + 1 :]]
        for index, value in enumerate(data):
            for smaller in _smaller(value, lengths=lengths):
                yield [*data[:index], smaller, *data[index + 1 :]]
    elif not lengths:
        if isinstance(data, bool):
            if data:
                yield False
        elif isinstance(data, int):
            tried = set()
            for smaller in (0, 1, data // 2, data - 1):
                if 0 <= smaller < data and smaller not in tried:
                    tried.add(smaller)
                    yield smaller
        elif isinstance(data, str) and data:
            yield data[: len(data) // 2]


def _faults(search: _Search) -> None:
    for fault in search.best.plan.faults:
        plan = search.best.plan
        fewer = tuple(f for f in plan.faults if f != fault)
        search.accept_program(replace(plan, faults=fewer), SEARCH_RUNS_UNSCHEDULED)
    for index in range(len(search.best.plan.faults)):
        fault = search.best.plan.faults[index]
        for rank, nth in itertools.product(range(search.best.plan.ranks), range(NTH_MAX)):
            if fault.rank != EVERY and (rank, nth) >= (fault.rank, fault.nth):
                break
            moved = replace(fault, rank=rank, nth=nth)
            if _accept_place(search, _with_fault(search.best.plan, index, moved)):
                break


def _accept_place(search: _Search, plan: Plan) -> bool:
    """A fault at another place, with the schedule as it is or all of the run's data late."""
    if search.accept(plan):
        return True
    if not plan.schedule:
        return False
    default, _ = search.attempt(replace(plan, schedule=()))
    late = () if default is None else data_holds(default.run)
    return bool(late) and search.accept(replace(plan, schedule=late))


def _with_fault(plan: Plan, index: int, fault: Fault) -> Plan:
    return replace(plan, faults=(*plan.faults[:index], fault, *plan.faults[index + 1 :]))


def _schedule(search: _Search) -> None:
    """Delete deviations (halves down to singles), try each one alone, then move them earlier."""
    if search.best.plan.schedule and search.accept(replace(search.best.plan, schedule=())):
        return
    size = len(search.best.plan.schedule)
    while size > 1:
        size = (size + 1) // 2
        start = 0
        while start < len(search.best.plan.schedule):
            schedule = search.best.plan.schedule
            kept = schedule[:start] + schedule[start + size :]
            if not search.accept(replace(search.best.plan, schedule=kept)):
                start += size
        if size == 1:
            break
    if len(search.best.plan.schedule) > 1:
        _single(search)
    for index in range(len(search.best.plan.schedule)):
        for earlier in _earlier(search.best.plan.schedule[index]):
            schedule = search.best.plan.schedule
            moved = (*schedule[:index], earlier, *schedule[index + 1 :])
            if search.accept(replace(search.best.plan, schedule=moved)):
                break


def _earlier(deviation: Deviation) -> Iterator[Deviation]:
    """Simpler forms of one deviation, the simplest first."""
    if isinstance(deviation, Hold):
        for op in range(deviation.op + 1):
            if (op, 0) < (deviation.op, deviation.until):
                yield Hold(op, 0)
        if deviation.until > 1:
            yield Hold(deviation.op, 1)
            yield Hold(deviation.op, deviation.until // 2)
            yield Hold(deviation.op, deviation.until - 1)
    else:
        for at in range(deviation.at + 1):
            for to in range(min(deviation.to + 1, 2) if at < deviation.at else deviation.to):
                yield Preempt(at, to)


def _single(search: _Search) -> None:
    """One deviation that does it alone, if there is one."""
    default = run(replace(search.best.plan, schedule=()), scenario=search.scenario).run
    for deviation in _singles(default.operations, default.points, search.best.plan.ranks):
        if search.accept(replace(search.best.plan, schedule=(deviation,))):
            return


def _singles(operations: int, points: int, ranks: int) -> Iterator[Deviation]:
    """Every single deviation up to equivalence of `until`, the simplest first."""
    for op in range(operations):
        yield Hold(op, 0)
    for at in range(points):
        for to in range(ranks):
            yield Preempt(at, to)


def _programs(search: _Search) -> list[Plan]:
    """The programs below the best plan's, smallest worlds first; see proof.py."""
    best = search.best.plan
    found = [_in_world(best, ranks) for ranks in range(search.scenario.ranks[0], best.ranks)]
    found += _coarser(best)
    for index in range(len(best.faults)):
        fewer = (*best.faults[:index], *best.faults[index + 1 :])
        found.append(replace(best, faults=fewer))
    for lengths in (True, False):
        for params in _simpler(best, search.scenario, lengths=lengths):
            found.append(replace(best, params=params))
    if best.crash is None:
        return found
    crashed = [one for plan in found for one in crash_plans(plan, search.scenario)]
    return [*simpler_crashes(best, search.scenario), *crashed]
