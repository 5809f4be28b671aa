"""What the race checker costs, how that grows, and whether it needs any luck."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

from msgspec.structs import replace

from benchmarks import figure, programs
from benchmarks.events import best_seconds
from harness import Hold, Plan, Scenario, registry, run
from harness.checkers import CHECKERS, RACES
from harness.fabric.execute import Job, execute
from harness.races.conflicts import Conflicts
from harness.record import Run
from harness.run import explore
from harness.schedule import PCT, POS, RandomWalk
from harness.strategy import drawn, struct_values

RANKS = 4
DRAWS = 10
ACCESSES = ("load", "store", "remote_load", "put", "deliver", "read", "land")


def _judged(*, races: bool) -> Run:
    """The 4-rank barrier, run and judged, as a hunt's default run is."""
    record = execute(Job(RANKS, programs.barrier_host()))
    for checker in (*CHECKERS, RACES) if races else CHECKERS:
        assert not list(checker.check(record))
    return record


def _looked(rounds: int) -> tuple[int, int, float, int]:
    """Events, accesses, seconds and peak bytes of looking for races in `rounds` all-reduces."""
    record = execute(Job(RANKS, programs.allreduce_host(rounds, 4), events_max=10**7))
    accesses = sum(raw[1] in ACCESSES for raw in record.raw)
    started = time.perf_counter()
    assert not list(Conflicts(record))
    seconds = time.perf_counter() - started
    tracemalloc.start()
    assert not list(Conflicts(record))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return len(record.raw), accesses, seconds, peak


def races(*, full: bool) -> list[dict[str, Any]]:
    """Cost on the 4-rank barrier; cost and memory an access from 1,000 to 100,000 of them."""
    repeat = 5 if full else 3
    plain = best_seconds(lambda: _judged(races=False), repeat, 200)
    looked = best_seconds(lambda: _judged(races=True), repeat, 200)
    found = [
        figure("barrier, run and judged", round(plain * 1e6), "us", "", None),
        figure("the same with races", round(looked * 1e6), "us", "", None),
        figure("with races vs without", round(looked / plain, 2), "ratio", "<= 3", looked <= 3 * plain),
    ]
    costs = []
    for rounds in (21, 210, 2100) if full else (21, 210):
        events, accesses, seconds, peak = _looked(rounds)
        costs.append((seconds / accesses, peak / accesses))
        found += [
            figure(f"races, {accesses} accesses, {events} events", round(1e6 * costs[-1][0], 1),
                   "us/access", "", None),
            figure(f"races, {accesses} accesses, peak memory", round(costs[-1][1]), "bytes/access",
                   "", None),
        ]
    slower = max(cost for cost, _ in costs) / costs[0][0]
    larger = max(peak for _, peak in costs) / costs[0][1]
    last = "100,000" if full else "10,000"
    return [
        *found,
        figure(f"an access, 1,000 to {last}", round(slower, 2), "ratio", "<= 3", slower <= 3),
        figure(f"memory an access, 1,000 to {last}", round(larger, 2), "ratio", "bounded",
               larger <= 1.5),
        *_in_the_default_run(),
    ]


def _several_rounds(params: list[Any]) -> list[Any]:
    return [one for one in params if len(getattr(one, "sizes", (1, 1))) > 1]


def _has_an_effect(plan: Plan, scenario: Scenario, default: Run) -> bool:
    """Whether any of 37 schedules shows anything."""
    held = tuple(Hold(op) for op in range(default.operations))
    if run(replace(plan, schedule=held), scenario=scenario).findings:
        return True
    return any(
        explore(plan, scenario, chooser).findings
        for seed in range(12)
        for chooser in (RandomWalk(seed), PCT(2, default.points, seed), POS(seed))
    )


def _in_the_default_run() -> list[dict[str, Any]]:
    """Mutants whose race is seen in the default run of their smallest world, for ten draws each.

    Draws are calls of two rounds or more where the parameters have rounds: what one call leaves to
    the next is no access of a program that is called once. Left out are draws in which no schedule of
    37 shows anything at all: blocks that do not overlap for these sizes, offsets that do not wrap.
    """
    seen, alike, missed = 0, 0, []
    for scenario in registry.scenarios().values():
        for mutant in scenario.mutants.values():
            params = _several_rounds(drawn(struct_values(scenario.params), 60, "races", scenario.name))
            first = Plan(scenario=scenario.name, params=scenario.params(), ranks=mutant.ranks,
                         bug=mutant.name)
            shown = [f.checker for f in run(first, scenario=scenario, races=True).findings]
            if RACES.name not in shown:
                continue
            for drawn_params in params[:DRAWS]:
                plan = Plan(scenario=scenario.name, params=drawn_params, ranks=mutant.ranks,
                            bug=mutant.name)
                outcome = run(plan, scenario=scenario, races=True)
                if any(f.checker == RACES.name for f in outcome.findings):
                    seen += 1
                elif not _has_an_effect(plan, scenario, outcome.run):
                    alike += 1
                else:
                    missed.append(f"{scenario.name}.{mutant.name} {drawn_params}")
    total = seen + len(missed)
    return [
        figure("race-visible mutants seen in one default run", seen, f"of {total} draws", f"{total}",
               not missed),
        figure("draws in which the mutant does as its twin, left out", alike, "draws", "", None),
        *(figure("missed", name, "draw", "", None) for name in missed),
    ]
