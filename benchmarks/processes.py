"""Real processes: what a world, a plan and a conducted operation cost, what is confirmed and left."""

from __future__ import annotations

import os
from functools import partial
from statistics import median
from typing import Any

from benchmarks import figure
from harness import Plan, registry, run
from harness.ambient import now
from harness.confirm import confirm
from harness.errors import NotYet
from harness.fabric import crew
from harness.hunt import Order, hunt
from harness.minimise import minimise
from harness.supervise import zygote

MESH = "collectives.allreduce_mesh"
PLAN_LIMIT_SECONDS = 20.0


def _plan(name: str, ranks: int, *, faults: Any = (), **params: Any) -> Plan:
    return Plan(
        scenario=name, params=registry.find(name).params(**params), ranks=ranks, faults=tuple(faults)
    )


def _seconds(body: Any, times: int) -> float:
    """The median of so many calls."""
    spent = []
    for _ in range(times):
        start = now()
        body()
        spent.append(now() - start)
    return median(spent)


def _cold(plan: Plan) -> None:
    """The plan in a world that is forked for it, by the zygote, and ended after it."""
    crew.cool()
    run(plan, "processes")


def worlds(*, full: bool) -> list[dict[str, Any]]:
    """A plan on the mesh at P=4: simulated with checkers, on a warm world, in a world forked for it."""
    plan, small = _plan(MESH, 4), _plan("collectives.hello_rank", 4)
    times = 50 if full else 10
    run(plan, "processes")
    simulated = _seconds(partial(run, plan), times * 4)
    forked = _seconds(partial(_cold, plan), times // 2)
    run(plan, "processes")
    warm = _seconds(partial(run, plan, "processes", natural=1), times)
    bare = _seconds(partial(run, small, "processes"), times)
    few, many = (_plan(MESH, 4, sizes=(4,) * rounds) for rounds in (2, 30))
    events = len(run(many).run.raw) - len(run(few).run.raw)
    spent = _seconds(partial(run, many, "processes"), times) - _seconds(
        partial(run, few, "processes"), times
    )
    checking = _seconds(partial(run, many), times) - _seconds(partial(run, few), times)
    operation = (spent - checking) / events * 1e6
    ratio = forked / simulated
    return [
        figure("simulated plans a second, mesh P=4", round(1 / simulated), "plans/s", "", None),
        figure("simulated plans vs a world forked per plan", round(ratio), "ratio", ">= 50", ratio >= 50),
        figure("a warm plan, P=4, its program does nothing", round(bare * 1000, 1), "ms", "<= 20",
               bare <= 0.02),
        figure("a warm plan, P=4, mesh in natural order", round(warm * 1000, 1), "ms", "", None),
        figure("a conducted operation beyond simulation", round(operation), "us", "<= 60",
               operation <= 60),
    ]


def _left() -> tuple[int, int, list[str], list[str]]:
    """Descriptors, processes, segments and folders of this harness."""
    run(_plan(MESH, 4), "processes")
    parents = {str(os.getpid()), str(zygote()._process.pid)}
    children = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                children += file.read().rpartition(")")[2].split()[1] in parents
        except OSError:
            continue
    segments = [name for name in os.listdir("/dev/shm") if f"_{os.getpid()}_" in name]
    return len(os.listdir("/proc/self/fd")), children, segments, os.listdir(zygote().folder)


def kills(*, full: bool) -> list[dict[str, Any]]:
    """Kills and stops in a row, by turns conducted and in natural order."""
    count = 200 if full else 20
    known = registry.faults()
    hits = (
        known["killed"](rank=1, nth=5), known["stopped"](rank=2, nth=3, milliseconds=20),
        known["native_abort"](rank=0, nth=7), known["exits"](rank=3, nth=1),
    )
    before = _left()
    slowest = 0.0
    for number in range(count):
        plan = _plan(MESH, 4, faults=[hits[number % len(hits)]])
        start = now()
        run(plan, "processes", natural=number if number % 8 >= 4 else None)
        slowest = max(slowest, now() - start)
    return [
        figure(f"left by {count} kills and stops", "nothing" if _left() == before else "something", "",
               "nothing", _left() == before),
        figure("slowest of them", round(slowest, 2), "s", f"< {PLAN_LIMIT_SECONDS:g}",
               slowest < PLAN_LIMIT_SECONDS),
    ]


def confirmed(*, full: bool) -> list[dict[str, Any]]:
    """Every mutant of the ladder whose minimal plan needs a schedule: confirmed on real processes?"""
    times = 10 if full else 2
    found: list[str] = []
    missing: list[str] = []
    natural = refused = 0
    for name, scenario in registry.scenarios().items():
        if not name.startswith("collectives."):
            continue
        for bug in scenario.mutants:
            hunted = hunt(Order(scenario, 0, bug=bug, plans_max=200))
            if hunted.finding is None or hunted.outcome is None:
                continue
            small = minimise(hunted.outcome, hunted.finding, scenario)
            if not small.outcome.plan.schedule:
                continue
            try:
                told = confirm(small.outcome.plan, scenario, hunted.finding, times)
            except NotYet:
                refused += 1
                continue
            found.append(f"{name} {bug}")
            natural += told.natural > 0
            if told.emulated < times:
                missing.append(f"{name} {bug}: {told.emulated} of {times}")
    return [
        figure(f"order-dependent findings confirmed {times} of {times} with emulated delay",
               f"{len(found) - len(missing)} of {len(found)}", "findings", "all", not missing),
        figure("of them confirmed in natural order too", natural, "findings", "", None),
        figure("of them refused on processes", refused, "findings", "", None),
        *(figure("not each time", text, "", "none", met=False) for text in missing),
    ]
