"""Cores with caches from end to end: hunted, converted, minimised, saved, replayed, refused."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from harness import Plan, Visibility, registry, run
from harness.corpus import read, replay, seed_of, write
from harness.errors import PlanError
from harness.hunt import Order, hunt
from harness.minimise import minimise
from harness.plan import coarser
from harness.report.hunt_text import command
from harness.run import explore
from harness.schedule import PCT, POS, RandomWalk
from harness.schedule.convert import deviations_of

RUNG = registry.find("collectives.cache_lines")
ON = Visibility(lines=True, stale=True)
DEFECTS = {
    "missing_publish": ("integrity/unwritten_memory", Visibility(delayed=True), "in the writer's cache"),
    "missing_invalidate": ("integrity/stale_value", Visibility(stale=True), "old copy of the line"),
    "packed_cells": ("deadlock/overwritten_signal", Visibility(lines=True), "share a 64-byte line"),
}
defects = pytest.mark.parametrize("defect", DEFECTS)


def order(defect, root_seed=1):
    if defect == "packed_cells":
        return Order(RUNG, root_seed, bug=defect, plans_max=60)
    return Order(RUNG, root_seed, faults=(defect,), plans_max=60)


@defects
def test_a_hunt_finds_it_in_few_plans(defect):
    for root_seed in range(5):
        found = hunt(order(defect, root_seed))
        assert found.finding.name == DEFECTS[defect][0]
        assert found.statistics.plans <= 6


@defects
def test_the_smallest_plan_has_one_switch_and_says_why(defect):
    found = hunt(order(defect))
    small = minimise(found.outcome, found.finding, RUNG, seconds=600.0)
    _, switches, why = DEFECTS[defect]
    assert small.proven
    assert small.outcome.plan.visibility == switches
    assert small.outcome.plan.ranks == (3 if defect == "packed_cells" else 2)
    assert len(small.outcome.plan.schedule) <= 1
    assert why in small.finding.cause


@defects
def test_a_seed_holds_the_switches_and_replays(defect, tmp_path):
    found = hunt(order(defect))
    path = tmp_path / "it.json"
    write(path, seed_of("it", found.outcome, found.finding, RUNG))
    seed = read(path)
    assert seed.plan.visibility.caches
    again = replay(seed, "it.json")
    assert (again.problem, again.stale) == ("", False)
    assert again.outcome.run.identity() == found.outcome.run.identity()


@pytest.mark.parametrize("caches", [False, True])
def test_the_right_program_is_silent(caches):
    found = hunt(Order(RUNG, 3, caches=caches, plans_max=300))
    assert found.finding is None
    assert not found.statistics.notes


@pytest.mark.nightly
@pytest.mark.parametrize("caches", [False, True])
def test_the_right_program_is_silent_over_two_thousand_plans(caches):
    assert hunt(Order(RUNG, 4, caches=caches, plans_max=2_000)).finding is None


def tried(scenario, **more):
    plans = []
    hunt(
        Order(scenario, 2, plans_max=40, **more),
        before_plan=lambda plan, name: plans.append((name, plan.visibility.caches)),
    )
    return plans


def test_only_scenarios_that_say_so_are_tried_with_caches():
    some = tried(RUNG)
    assert ("caches", True) in some
    assert all(caches == (name == "caches") for name, caches in some)
    without = tried(dataclasses.replace(RUNG, caches=False))
    assert not any(caches for _, caches in without)
    same = [entry for entry in some if entry[0] != "caches"]
    assert without[: len(same)] == same, "and nothing else changes"


def test_caches_can_be_asked_for_in_every_plan():
    barrier = registry.find("collectives.barrier")
    assert all(caches for _, caches in tried(barrier, caches=True))
    assert "--caches" in command(Order(barrier, 1, caches=True))
    assert "--caches" not in command(Order(barrier, 1))


@pytest.mark.parametrize("caches", [Visibility(delayed=True), Visibility(lines=True), ON], ids=repr)
@pytest.mark.parametrize("bug", [None, "packed_cells"])
def test_explored_runs_convert_to_deviations(caches, bug):
    plan = Plan(scenario=RUNG.name, params=RUNG.params(), ranks=3, bug=bug, visibility=caches)
    points = run(plan, scenario=RUNG).run.points
    for seed in range(20):
        for chooser in (RandomWalk(seed), POS(seed), PCT(2, points, seed)):
            explored = explore(plan, RUNG, chooser).run
            found = msgspec.structs.replace(plan, schedule=deviations_of(plan, RUNG, explored))
            repeated = run(found, scenario=RUNG).run
            assert repeated.identity() == explored.identity()
            assert repeated.value_identity() == explored.value_identity()
            assert repeated.deviations_applied >= len(found.schedule)


def test_what_is_coarser():
    assert coarser(Visibility()) == []
    assert coarser(Visibility(delayed=True)) == [Visibility()]
    assert coarser(Visibility(lines=True)) == [Visibility(), Visibility(delayed=True)]
    assert coarser(Visibility(stale=True, torn=8)) == [
        Visibility(torn=8), Visibility(stale=True), Visibility(stale=True, torn=64),
    ]
    assert coarser(ON) == [
        Visibility(), Visibility(delayed=True), Visibility(stale=True),
        Visibility(stale=True, delayed=True), Visibility(lines=True),
    ]
    # Lines are delayed whether the switch says so or not.
    assert Visibility(lines=True) in coarser(Visibility(lines=True, delayed=True))


@pytest.mark.parametrize("switch", ["lines", "stale", "delayed"])
def test_real_processes_have_the_caches_of_their_machine(switch):
    plan = Plan(
        scenario=RUNG.name, params=RUNG.params(), ranks=2, visibility=Visibility(**{switch: True})
    )
    with pytest.raises(PlanError, match=rf"\$\.visibility\.{switch}: given true.*only false is allowed"):
        run(plan, "processes", scenario=RUNG)
