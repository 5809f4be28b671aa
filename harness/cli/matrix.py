"""`rankfault matrix`: the rows over several processes, then text, JSON and a page."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import registry
from harness.ambient import now
from harness.cli.hunting import STOPPED, Wanted, announce_left, scenarios_of
from harness.cli.interrupt import Interrupt, Interrupted
from harness.cli.output import Output, width
from harness.cli.progress import RowsProgress
from harness.errors import UsageError
from harness.in_flight import InFlight, Slot, open_slot
from harness.matrix import FAILING, UNPROVEN, Row, cases, not_run, row_by_name, row_of
from harness.plan import Plan, encode
from harness.report.matrix_html import page
from harness.report.matrix_text import plain, render
from harness.scenario import Scenario
from harness.trial import BeforePlan, Case, Limits
from harness.workers import Died, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMatrix:
    """The matrix command's options as typed."""

    targets: tuple[str, ...] = ()
    root_seeds: int = 3
    root_seed: int = 0
    plans: int = 100
    jobs: int | None = None
    json: bool = False
    html: Path | None = None


def run_matrix(wanted: WantedMatrix) -> int:
    """The whole command; returns its exit code."""
    if wanted.html is not None:
        _check_page(wanted.html)
    scenarios = {one.name: one for one in scenarios_of(Wanted(targets=wanted.targets))}
    seeds = tuple(range(wanted.root_seed, wanted.root_seed + wanted.root_seeds))
    limits = Limits(root_seeds=seeds, plans_max=wanted.plans)
    todo = cases(scenarios.values())
    jobs = min(wanted.jobs or _cores(), len(todo))
    output = Output(json=wanted.json)
    found: dict[int, Row] = {}
    started = now()
    interrupt = Interrupt()
    with interrupt, RowsProgress(len(todo)) as progress:
        if jobs > 1:
            rows = _spread(todo, limits, jobs, interrupt, progress)
        else:
            rows = _one_by_one(todo, scenarios, limits, interrupt)
        with contextlib.suppress(Interrupted, KeyboardInterrupt), contextlib.closing(rows):
            for index, row in rows:
                found[index] = row
                progress.add(row)
                interrupt.check()
    stopped = len(found) < len(todo)
    matrix = [
        found.get(index) or not_run(case, "stopped with Ctrl-C before it was done")
        for index, case in enumerate(todo)
    ]
    say = output.say
    notes = [
        _undeclared(list(scenarios.values())),
        f"in {now() - started:.0f} s, {jobs} process{'es' if jobs > 1 else ''}",
    ]
    if stopped:
        notes.append(f"stopped with Ctrl-C; {len(found)} of {len(todo)} rows are there")
    say(render(matrix, width=width(), notes=notes))
    output.give(plain(matrix))
    if wanted.html is not None:
        _write_page(wanted.html, matrix)
        say(f"page: {wanted.html.as_posix()}")
    return STOPPED if stopped else exit_code(matrix)


def _cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _spread(
    todo: Sequence[Case], limits: Limits, jobs: int, interrupt: Interrupt, progress: RowsProgress
) -> Generator[tuple[int, Row], None, None]:
    """Rows from worker processes, as they come."""

    def on_wait() -> None:
        interrupt.check()
        progress.draw()

    calls = [(case, limits) for case in todo]
    for index, row in spread(row_by_name, calls, jobs, on_wait):
        yield index, not_run(todo[index], str(row), "unknown") if isinstance(row, Died) else row


def _one_by_one(
    todo: Sequence[Case], scenarios: dict[str, Scenario], limits: Limits, interrupt: Interrupt
) -> Generator[tuple[int, Row], None, None]:
    """Rows from this process, with the plan in flight in a slot in case it dies."""
    slot = open_slot()
    announce_left(slot)
    try:
        for index, case in enumerate(todo):
            scenario = interrupt.stopping(scenarios[case.scenario])
            row = row_of(case, scenario, limits, _announcing(slot, case), Interrupted)
            if interrupt.count > 1:  # it may have struck inside a rank
                raise Interrupted
            yield index, row
    finally:
        if slot is not None:
            slot.clear()
            slot.close()


def _announcing(slot: Slot | None, case: Case) -> BeforePlan | None:
    if slot is None:
        return None
    again = shlex.join(("rankfault", "matrix", case.scenario, "--jobs", "1"))

    def before_plan(plan: Plan, explorer: str) -> None:
        slot.write(InFlight(encode(plan).decode(), explorer, again))

    return before_plan


def exit_code(rows: Sequence[Row]) -> int:
    """1 with a survivor, a false alarm or a wrong declaration; 4 if something is not proven; else 0."""
    statuses = {row.status for row in rows}
    if statuses & set(FAILING):
        return 1
    return 4 if statuses & set(UNPROVEN) else 0


def _undeclared(scenarios: Sequence[Scenario]) -> str:
    """How much of the catalogue has no row, because the scenario says nothing of it."""
    bugs = {name for name, fault in registry.faults().items() if fault.family == "bug"}
    total = len(bugs) * len(scenarios)
    missing = sum(len(bugs - set(one.bug_faults)) for one in scenarios)
    return f"not in it, because not declared: {missing} of {total} (scenario, bug fault) pairs"


def _check_page(path: Path) -> None:
    """Refuse a page that cannot be written before the work is done, not after."""
    told = ""
    if path.is_dir():
        told = "is a folder"
    elif not path.parent.is_dir():
        told = f"there is no folder {path.parent.as_posix()}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        told = "cannot be written"
    if told:
        raise UsageError(f"--html {path.as_posix()}: {told}")


def _write_page(path: Path, rows: Sequence[Row]) -> None:
    try:
        path.write_text(page(rows), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--html {path}: cannot be written: {error.strerror or error}") from None
