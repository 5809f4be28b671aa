"""From an explored run to the list of deviations that repeats it.

Two steps. Operations that were delivered later than they could be become Holds with the exact
number of events. Then the run is repeated with these holds under a guide that knows who moved at
each event; wherever the default rule would have chosen somebody else, a Preempt is written down.
The result, run as a plan, has the same identity: the engine follows every choice by exactly one
event of its owner.
"""

from __future__ import annotations

from collections import defaultdict, deque

import msgspec

from harness.errors import EngineError
from harness.fabric.execute import Job
from harness.fabric.late_lanes import running_number
from harness.plan import Deviation, Hold, Plan
from harness.record import Run
from harness.run import execute_plan
from harness.scenario import Scenario

# Events that no choice of the engine went before: a lane goes on to them from its last one.
UNCHOSEN = frozenset(("raise", "crash", "fault", "signal", "write_back"))
UNORDERED = frozenset(("get_issue", "get_nbi"))


class _Waiting:
    """An operation in flight. since: events there were at its issue. ready: choices there had been
    when it could first be delivered, or None while a fence keeps it behind others."""

    __slots__ = ("begun", "mark", "ready", "since", "target")

    def __init__(self, since: int, target: tuple[int, int], mark: int) -> None:
        self.since = since
        self.target = target
        self.mark = mark
        self.ready: int | None = None
        self.begun = False  # a first piece of it has been delivered


def holds_of(run: Run) -> list[Hold]:
    """A Hold for every operation that was not delivered as soon as it could be, in issue order."""
    flying: dict[int, _Waiting] = {}
    by_target: dict[tuple[int, int], dict[int, _Waiting]] = defaultdict(dict)
    fenced: dict[tuple[int, int], deque[int]] = defaultdict(deque)  # in issue order
    fences: dict[int, int] = {}  # lane -> operations that were issued before its last fence
    data_of: dict[int, int] = {}  # signal -> the put that it follows
    issued = choices = 0
    holds = []

    def open_one(number: int) -> None:
        """Note that no fence keeps this operation any more; a signal also waits for its data."""
        if data_of.get(number) not in flying and flying[number].ready is None:
            flying[number].ready = choices

    def delivered(number: int, target: tuple[int, int]) -> None:
        """Note which operations to `target` may be delivered from now on."""
        ahead = by_target[target]
        del ahead[number]
        first = next(iter(ahead), 0)
        while fenced[target]:
            behind = fenced[target][0]
            if behind in flying and flying[behind].mark > first:
                break
            fenced[target].popleft()
            if behind in flying:
                open_one(behind)
        signal = flying.get(number + 1)
        if data_of.get(number + 1) == number and signal is not None and signal.mark <= first:
            open_one(number + 1)

    for index, event in enumerate(run.raw):
        owner, kind, number = event[0], event[1], event[7]
        choices += kind not in UNCHOSEN
        if kind == "fence":
            fences[owner] = issued
        if number < 0 or kind == "write_back":
            continue
        if owner < len(run.lanes):
            # A get is ordered by nothing: its target is like no other.
            target = (-1, number) if kind in UNORDERED else (owner, event[3])
            if kind == "signal":  # issued in one go with its data
                data_of[number] = number - 1
                flying[number - 1].since = index + 1
            flying[number] = _Waiting(index + 1, target, fences.get(owner, 0))
            by_target[target][number] = flying[number]
            issued = number + 1
            if flying[number].mark > next(iter(by_target[target])):
                fenced[target].append(number)
            else:
                open_one(number)
        elif number in flying:
            waiting = flying[number]
            if not waiting.begun:
                waiting.begun = True
                if waiting.ready is not None and choices - 1 > waiting.ready:
                    holds.append(Hold(number, index - waiting.since))
            if kind != "deliver_part":  # of a get there is nothing more to know
                del flying[number]
                delivered(number, waiting.target)
    holds += [
        Hold(number, 0)  # never delivered: the run ended first
        for number, waiting in flying.items()
        if waiting.ready is not None and choices > waiting.ready and not waiting.begun
    ]
    return sorted(holds, key=lambda hold: hold.op)


def deviations_of(plan: Plan, scenario: Scenario, run: Run) -> tuple[Deviation, ...]:
    """The schedule that makes `plan` repeat `run`. Raises EngineError if it does not."""
    lanes, late = len(run.lanes), len(run.threads)
    owners = [running_number(event[0], lanes, late) for event in run.raw]
    count = len(owners)

    def guide(clock: int) -> int:
        return owners[clock] if clock < count else -1

    eager = plan.visibility.delivery == "eager"  # which ignores Holds: all is said in Preempts
    holds = [] if eager else holds_of(run)
    guided = msgspec.structs.replace(plan, schedule=tuple(holds))
    jobs: list[Job] = []
    limit = count if run.ended == "overrun" else count + 2  # one that goes on is cut off
    repeated = execute_plan(guided, scenario, guide=guide, job_out=jobs, events_max=max(limit, 1))
    if repeated.identity() != run.identity():
        where = next(
            (i for i, (a, b) in enumerate(zip(repeated.raw, run.raw, strict=False))
             if a[:6] != b[:6]),
            min(len(repeated.raw), count),
        )
        raise EngineError(
            f"{plan.scenario}: a repeated run differs at event {where}: the program draws on "
            "something outside the plan (an address, a set's order), or the engine is wrong"
        )
    return (*holds, *jobs[0].derived)
