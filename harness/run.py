"""`run(plan)`: execute a plan on a fabric, judge the record.

On the simulated fabric it is a deterministic function of the plan. `explore` is the same with an
explorer's chooser instead of the plan's schedule; its outcome carries no schedule until it is converted
(schedule/convert.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from harness import registry
from harness.checkers import CHECKERS, RACES
from harness.crash_states import Aftermath, CrashStates
from harness.errors import NotHere, NotYet, PlanError, Refused, Undecided, UsageError
from harness.fabric.execute import Job, execute
from harness.fabric.frames import user_frame
from harness.fabric.lanes import EVENT_SECONDS
from harness.fabric.simulated import EVENTS_MAX, Chooser
from harness.finding import REFUSED, Finding, Outcome
from harness.host import World
from harness.plan import CACHES, Plan
from harness.record import Run, place
from harness.scenario import Observed, Scenario
from harness.simulated_disk import SimulatedDisk
from harness.supervise import STARTS, Limits
from harness.usual import reconciled

FABRICS = ("simulated", "processes")
USUAL_MAX = 256
RUNS_MAX = 8
FAST_EVENT_SECONDS = 0.01  # a thousand times the usual: it shows in whatever was measured
# What ranks raise because calls of torch.distributed do not fit, where the finding is that they do not.
_FOLLOW = frozenset(
    f"exceptions/{kind}"
    for kind in ("collective_mismatch", "not_a_member", "wrong_collective", "wrong_world")
)
_in_flight: list[Plan] = []
# What default runs came to; the scenario is kept, so that no other one gets its id.
_usual: dict[tuple[int, bytes], tuple[Scenario, list[list[str]]]] = {}


@dataclass(frozen=True, slots=True)
class Real:
    """How a plan runs on real processes: in natural order from a seed, or conducted; within which limits;
    how the processes start."""

    natural: int | None = None
    limits: Limits | None = None
    start: str = "fork"


def in_flight() -> Plan | None:
    """The plan that is being executed in this process, for whoever must report a standstill."""
    return _in_flight[-1] if _in_flight else None


def run(
    plan: Plan, fabric: str = "simulated", *, scenario: Scenario | None = None, races: bool = False,
    watch: bool = False, natural: int | None = None, limits: Limits | None = None, start: str = "fork",
) -> Outcome:
    """Execute and judge `plan`. scenario: the one the plan names, if the caller has it at hand.

    fabric: "simulated", or "processes", where the plan's schedule is imposed on real processes.
    natural: a seed: let the processes run in their own order, with seeded pauses.
    limits: seconds that an operation and the plan may take on processes (harness/supervise.py).
    start: "fork", "spawn" or "forkserver": how the processes begin (docs/processes.md).
    races: look for races as well.
    watch: look at every torch operation for uses of plain tensors in flight (fabric/tensors.py).

    Raises UsageError for a plan that names what does not exist or lies outside the scenario's bounds.
    """
    if fabric not in FABRICS:
        raise NotYet(f"fabric {fabric!r}: not yet built; choose one of: {', '.join(FABRICS)}")
    if start not in STARTS:
        raise UsageError(f"start={start!r}: choose one of: {', '.join(STARTS)}")
    if fabric != "processes":
        for name, given, lacks in (
            ("natural", natural, "natural order"), ("limits", limits, "limits of time"),
            ("start", None if start == "fork" else start, "processes that start"),
        ):
            if given is not None:
                raise UsageError(f"{name}={given!r}: the {fabric} fabric has no {lacks}; leave it out")
    found = scenario if scenario is not None else registry.find(plan.scenario)
    plan = lowered(plan, found)
    real = Real(natural, limits, start) if fabric == "processes" else None
    record = execute_plan(plan, found, watch=watch, real=real)
    return judge(plan, found, record, races=races)


def lowered(plan: Plan, scenario: Scenario) -> Plan:
    """`plan` with its friendly timing faults written as the Holds and Preempts they stand for."""
    for fault in sorted(plan.faults, key=lambda fault: fault.reorders):
        if fault.lowers:
            plan = fault.lower(plan, scenario)
    return plan


def explore(
    plan: Plan, scenario: Scenario, chooser: Chooser, events_max: int = EVENTS_MAX
) -> Outcome:
    """Execute `plan` with its schedule replaced by an explorer's choices, and judge it."""
    return judge(plan, scenario, execute_plan(plan, scenario, chooser=chooser, events_max=events_max))


def check_plan(plan: Plan, scenario: Scenario, fabric: str = "simulated") -> None:
    """Refuse what the scenario or the fabric cannot run. Raises PlanError, UnknownName or
    NotHere."""
    low, high = scenario.ranks
    if not low <= plan.ranks <= high:
        raise PlanError(
            f"plan: $.ranks: {plan.ranks} is outside {low}..{high}, the worlds of {scenario.name}"
        )
    registry.mutant_of(scenario, plan.bug)
    if missing := scenario.missing:
        raise NotHere(f"{scenario.name} cannot run here: {missing}")
    for index, fault in enumerate(plan.faults):
        if fabric not in fault.fabrics:
            raise PlanError(
                f"plan: $.faults[{index}]: {fault.tag()} hits a real process; it needs fabric "
                f"{' or '.join(fault.fabrics)}, given {fabric}"
            )
    if fabric != "simulated":
        for switch in CACHES:
            if getattr(plan.visibility, switch):
                raise PlanError(
                    f"plan: $.visibility.{switch}: given true; real processes have the caches of their "
                    "machine, so on them only false is allowed"
                )
    if plan.crash is not None and scenario.recovery is None:
        raise PlanError(
            f"plan: $.crash: {scenario.name} has no recovery that could follow a crash; allowed null"
        )


def execute_plan(
    plan: Plan, scenario: Scenario, *, chooser: Chooser | None = None,
    guide: Callable[[int], int] | None = None, events_max: int = EVENTS_MAX,
    job_out: list[Job] | None = None, watch: bool = False, real: Real | None = None,
    event_seconds: float = EVENT_SECONDS,
) -> Run:
    """The record of one execution, with the reference in it, not yet judged.

    real: how it runs on real processes; None = it is simulated.

    Of a plan with a crash: the record of the recovery; its faults fired before the crash.
    """
    check_plan(plan, scenario, "simulated" if real is None else "processes")
    mutant = registry.mutant_of(scenario, plan.bug)
    if scenario.ready is not None:
        scenario.ready(plan.params, plan.ranks)

    def host(world: World) -> Any:
        return scenario.host(world, plan.params)

    job = Job(
        ranks=plan.ranks,
        host=host,
        faults=plan.faults,
        schedule=plan.schedule,
        eager=plan.visibility.delivery == "eager",
        torn=plan.visibility.torn,
        caches=plan.visibility if plan.visibility.caches else None,
        watch=watch,
        threads=scenario.threads,
        device_ids=scenario.device_ids(plan.ranks) if scenario.device_ids else None,
        chooser=chooser,
        guide=guide,
        events_max=events_max,
        event_seconds=event_seconds,
    )
    if job_out is not None:
        job_out.append(job)
    _in_flight.append(plan)
    try:
        with mutant.planted() if mutant else contextlib.nullcontext():
            record = execute(job) if real is None else _real(plan, scenario, job, real)
            if plan.crash is not None:
                record = _recovered(plan, scenario, record)
    finally:
        _in_flight.pop()
    if record.observed is None:
        record.observed = {"result": [r[-1] if r else None for r in record.results]}
    if scenario.comes_to is not None and real is None:
        record.came_to = scenario.comes_to(record)
        if (plan.schedule or chooser is not None) and not plan.faults:
            record.usually = _usually(plan, scenario, record.came_to)
        elif not (plan.schedule or plan.faults or chooser or guide) and event_seconds == EVENT_SECONDS:
            _runs_of(plan, scenario, lambda: record)
    record.tolerance = scenario.tolerance
    if scenario.reference is not None:
        record.expected = _expected(plan, scenario)
    return record


def _runs_of(plan: Plan, scenario: Scenario, default: Callable[[], Run]) -> list[list[str]]:
    """What default runs of `plan` came to, as far as it is known; at first what `default` did. Empty if
    that did not end well."""
    key = (id(scenario), msgspec.json.encode(plan))
    if key not in _usual:
        record = default()
        ended_well = record.ended == "returned" and not record.failures
        _usual[key] = scenario, [record.came_to] if ended_well else []
        if len(_usual) > USUAL_MAX:
            del _usual[next(iter(_usual))]
    return _usual[key][1]


def _usually(plan: Plan, scenario: Scenario, now: list[str]) -> list[str] | None:
    """What the ranks come to in the default run of `plan`; None if that does not end well.

    Lines that do not follow from the plan alone are taken from `now`: what the default run says
    differently, should `now` differ, under a clock that goes faster or when it is repeated."""
    plan = msgspec.structs.replace(plan, schedule=())

    def another(event_seconds: float = EVENT_SECONDS) -> list[list[str]]:
        record = execute_plan(plan, scenario, event_seconds=event_seconds)
        return [record.came_to] if record.ended == "returned" and not record.failures else []

    runs = _runs_of(plan, scenario, lambda: execute_plan(plan, scenario))
    if not runs:
        return None
    if len(runs) == 1 and now != runs[0]:
        runs += another(FAST_EVENT_SECONDS)
    if reconciled(now, runs) != now:
        runs += another()
        del runs[1:-RUNS_MAX]
    return reconciled(now, runs)


def _recovered(plan: Plan, scenario: Scenario, record: Run) -> Run:
    """The record of what comes after the crash; `record` itself if its host program failed."""
    crash, recovery = plan.crash, scenario.recovery
    assert recovery is not None
    while crash is not None and not record.failures:
        disk = record.observed.get("disk") if isinstance(record.observed, dict) else None
        if not isinstance(disk, SimulatedDisk):
            raise UsageError(f"scenario {scenario.name}: what it returns has no SimulatedDisk as `disk`")
        states = CrashStates(disk.log, disk.tree.profile, disk.tree.base)
        left = states.disk(crash, direct_block=disk.direct_block)
        aftermath = Aftermath(left, crash, record.observed, states.told(crash))

        def host(world: World, aftermath: Aftermath = aftermath) -> Any:
            return recovery(world, plan.params, aftermath)

        before = record
        record = execute(Job(ranks=plan.ranks, host=host))
        record.faults, record.fired, record.seen = before.faults, before.fired, before.seen
        crash = crash.again
    return record


def _expected(plan: Plan, scenario: Scenario) -> Observed:
    assert scenario.reference is not None
    try:
        return scenario.reference(plan.params, plan.ranks)
    except Exception as error:
        code, lasti = user_frame(error)
        where = f" at {place(code, lasti)}" if code is not None else ""
        raise UsageError(
            f"scenario {scenario.name}: its reference failed{where} for {plan.ranks} ranks and "
            f"{plan.params}: {type(error).__name__}: {error}"
        ) from error


def _real(plan: Plan, scenario: Scenario, job: Job, how: Real) -> Run:
    """The record of one execution on real processes."""
    from harness.fabric import processes  # starts nothing, but is not needed to simulate

    return processes.execute(
        plan, scenario, job, seed=how.natural, limits=how.limits, start=how.start
    )


def judge(plan: Plan, scenario: Scenario, record: Run, *, races: bool = False) -> Outcome:
    """The outcome of a finished run: every checker's findings, and why it may be UNKNOWN.

    Races come last, and before them signal leaks: where a wrong value or a deadlock shows, that is the
    finding, and the others are named beside it. What calls of torch.distributed show comes first, and
    which rule of PyPTO is broken: what a rank raised, or waits for, follows from it. Of a program's own
    check that failed, which says nothing of the reason, anything else is the reason.
    """
    findings: list[Finding] = []
    notes: list[str] = []
    for checker in (*CHECKERS, *scenario.checkers, *((RACES,) if races else ())):
        try:
            findings.extend(checker.check(record))
        except Undecided as error:  # what it found before that counts
            notes.append(f"checker {checker.name}: {error}")
        except Refused as error:
            notes.append(f"{REFUSED}{error}")
        except Exception as error:  # a crashed checker is UNKNOWN, never a pass
            notes.append(f"checker {checker.name} failed: {type(error).__name__}: {error}")
    if any(found.checker == "torch" and found.consequences for found in findings):
        findings = [found for found in findings if found.name not in _FOLLOW]
    findings.sort(key=lambda found: (
        found.checker == "golden", found.checker == RACES.name, found.kind == "signal_leak",
        found.checker not in ("torch", "pld"),
    ))
    for index, fault in enumerate(plan.faults):
        if not record.fired[index]:
            notes.append(f"fault {fault!r} never fired")
    return Outcome(plan, record, tuple(findings), tuple(notes))
