"""Races are reported in one default run and on any schedule; healthy programs never are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from faults.environment import Crash
from harness import Hold, Plan, registry
from harness.checkers.races import Races
from harness.fabric.execute import Job, execute
from harness.run import execute_plan
from harness.schedule.random_walk import RandomWalk

_spec = importlib.util.spec_from_file_location(
    "race_programs", Path(__file__).with_name("race_programs.py")
)
programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)

SEEDS = 50


def go(program, size, *schedule, seed=None, args=()):
    def host(world):
        for rank in range(size):
            world.dispatch(program, *args, device=rank)

    chooser = None if seed is None else RandomWalk(seed)
    run = execute(Job(ranks=size, host=host, schedule=schedule, chooser=chooser))
    assert run.failures == []
    return run


def found(run):
    return list(Races().check(run))


@pytest.mark.parametrize("name", programs.RACY)
def test_a_race_is_found_in_one_default_run(name):
    program, size, kinds = programs.RACY[name]
    run = go(program, size)
    findings = found(run)
    assert findings
    assert {finding.kind for finding in findings} <= kinds | {"unordered_write", "unordered_read"}
    assert findings[0].kind in kinds


@pytest.mark.parametrize("name", programs.RACY)
def test_a_race_is_found_on_every_schedule(name):
    program, size, _ = programs.RACY[name]
    assert all(found(go(program, size, seed=seed)) for seed in range(SEEDS))


@pytest.mark.parametrize("name", programs.HEALTHY)
def test_healthy_programs_are_silent_on_every_schedule(name):
    program, size = programs.HEALTHY[name]
    default = go(program, size)
    assert found(default) == []
    assert found(go(program, size, *(Hold(op) for op in range(default.operations)))) == []
    for seed in range(SEEDS):
        assert found(go(program, size, seed=seed)) == []


RUNGS = [s.name for s in registry.scenarios().values() if s.name.startswith("collectives.")]
# Mutants whose bug is a missing order, each in its smallest world; integrity passes some of their runs.
RACY_MUTANTS = (
    "allreduce_mesh.missing_barrier", "allreduce_mesh.missing_second_barrier",
    "allreduce_mesh.neighbours_only", "barrier.epoch_forgotten", "barrier.fence_for_quiet",
    "put_get.put_without_wait", "put_get.notify_overtakes_put", "put_get.reader_not_awaited",
    "put_get.get_without_quiet", "remote_load_store.load_before_sent",
    "remote_load_store.sync_without_quiet", "remote_load_store.boxes_reused_early",
    "window_buffer.read_before_barrier", "hello_rank.identity_read_once",
    "two_lanes.both_lanes_send", "two_lanes.fence_is_the_other_lanes",
    "two_lanes.credit_not_awaited", "two_lanes.credit_before_the_copy",
    "streams.copy_not_ordered_after_compute",
    "streams.event_recorded_before_the_copy",
    "allreduce_twophase.two_barriers_one_row", "allreduce_twophase.chunks_overtaken",
    "allreduce_twophase.sticky_arrivals", "allreduce_ring.announces_to_left",
    "allreduce_ring.halves_share_rows", "allreduce_ring.first_pull_unguarded",
    "allreduce_ring.credit_before_last_pull", "broadcast.read_before_staged",
    "broadcast.readers_not_awaited",
    "barrier.epoch_added", "credit_barrier.sticky_flag", "credit_barrier.last_credit_kept",
    "credit_barrier.reset_by_set", "dissemination.butterfly", "dissemination.logarithm_rounded_down",
    "domain.pad_zeroed_after_it_was_visible", "domain.released_before_the_last_row",
    "far_offsets.unsigned_offset_wraps", "groups.groups_share_a_slot",
    "pipeline.one_counter_for_all_chunks", "scratch.flags_move_with_the_size",
    "stages.next_stage_cleaned",
    "allgather.gathered_into_the_wrong_slot", "allgather.credit_overtakes_row",
    "allgather.credits_kept", "allgather.credits_still_in_flight", "allgather.missing_read_barrier",
    "reduce_scatter.round_forgotten", "reduce_scatter.readers_not_awaited",
    "alltoall.source_and_result_in_one_window", "alltoall.transposed_place",
    "alltoall.one_counter_for_all_sources", "alltoall.readers_not_awaited",
    "alltoall.fence_for_quiet", "alltoall.not_settled", "alltoallv.arrival_overtakes_block",
    "together.one_window_for_two_layouts", "together.counts_taken_for_credits",
    "together.one_data_window", "together.credit_kept", "together.root_leaves_early",
)
# Those whose default run has a race in some worlds only: whether two blocks overlap follows from their
# sizes (or whether an offset wraps to another rank's block, or a stray signal lands in what is read), a
# reader that finds the next round's count has by that heard of the next round's block, and a rank leaves
# its loop early only where there is room for a request.
SOMETIMES_RACY = (
    "alltoall.places_move_with_the_size", "alltoallv.places_move_with_the_size",
    "alltoallv.readers_not_awaited", "admission.own_room_decides", "channels.limit_multiplied",
    "far_offsets.signed_offset_wraps", "streams.slot_filled_before_copied",
)


def rung(name, ranks, bug=None, *, seed=None, schedule=(), sizes=(4, 7)):
    scenario = registry.find(name)
    params = scenario.params(sizes=sizes)
    plan = Plan(scenario=name, params=params, ranks=ranks, bug=bug, schedule=schedule)
    chooser = None if seed is None else RandomWalk(name, seed)
    return execute_plan(plan, scenario, chooser=chooser)


@pytest.mark.parametrize("name", RUNGS)
def test_the_ladder_is_silent(name):
    silent(name, seeds=3)


@pytest.mark.nightly
@pytest.mark.parametrize("name", RUNGS)
def test_the_ladder_is_silent_on_more_schedules(name):
    silent(name, seeds=50)


def silent(name, seeds):
    for ranks in range(1, 9):
        default = rung(name, ranks)
        held = tuple(Hold(op) for op in range(default.operations))
        runs = [default, rung(name, ranks, schedule=held), rung(name, ranks, sizes=(7, 4, 1))]
        runs += [rung(name, ranks, seed=seed) for seed in range(seeds)]
        assert [found(run) for run in runs] == [[]] * len(runs)


@pytest.mark.parametrize("name", RACY_MUTANTS)
def test_a_racy_mutant_is_found_in_the_default_run(name):
    module, _, bug = name.partition(".")
    scenario = registry.find(f"collectives.{module}")
    for ranks in (scenario.mutants[bug].ranks, scenario.mutants[bug].ranks + 2):
        for sizes in ((4, 7), (1, 2), (7, 4)):
            assert found(rung(scenario.name, ranks, bug, sizes=sizes))


@pytest.mark.parametrize("name", SOMETIMES_RACY)
def test_a_mutant_that_is_racy_in_some_worlds(name):
    module, _, bug = name.partition(".")
    worlds = [(ranks, sizes) for ranks in (2, 3) for sizes in ((4, 7), (7, 4), (1, 2))]
    runs = [rung(f"collectives.{module}", ranks, bug, sizes=sizes) for ranks, sizes in worlds]
    assert {bool(found(run)) for run in runs} == {True, False}


def test_other_mutants_have_no_race():
    for scenario in map(registry.find, RUNGS):
        for mutant in scenario.mutants.values():
            name = f"{scenario.name.partition('.')[2]}.{mutant.name}"
            if name not in RACY_MUTANTS + SOMETIMES_RACY:
                for ranks in (mutant.ranks, mutant.ranks + 1):
                    assert found(rung(scenario.name, ranks, mutant.name)) == []


def test_a_finding_names_both_accesses_and_the_missing_edge():
    def program(rank):
        data, sig = programs.opened(rank)
        if rank.index:
            rank.put(data, 0, programs.row(1), 2)
            rank.notify(sig, 0, 0, 1)
        else:
            rank.wait(sig, 0, 1)
            rank.load(data, 1, 4)

    (finding,) = found(go(program, 2))
    line = program.__code__.co_firstlineno
    here = "tests/harness/checkers/test_races.py"
    put, load = (f"{here}:{line + at} in program" for at in (3, 7))
    assert finding.name == "races/unordered_read"
    assert finding.rank == 0
    assert finding.message == (
        f"rank 0's load at {load} reads 'data'[2:4] of rank 0, rank 1's put #0 at {put} writes it, "
        "and nothing orders the two"
    )
    writes, reads, common, edge = finding.evidence
    assert writes.startswith(f"rank 1's put #0 at {put} (lane 0) writes 'data'[2:4] of rank 0, in flight")
    assert reads.startswith(f"rank 0's load at {load} (lane 0) reads 'data'[1:5], at event")
    assert "has heard of rank 1 up to rank 1's notify #1" in common
    assert edge == (
        f"missing edge: rank 1's put #0 at {put} is ordered before rank 1's notify #1 at "
        f"{here}:{line + 4} in program only by a fence or quiet; there is none between them"
    )
    assert [site.operation for site in finding.sites] == ["load", "put"]
    assert finding.cause
    assert finding.remedy


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("second put while the reader reads", "nor rank 1 that rank 0 has read"),
        ("3 chunks on one counter", "only a count orders them"),
        ("source written behind a fence", "no quiet stands between"),
        ("get beside the store", "tells rank"),
        ("landing read in flight", "no quiet stands between"),
    ],
)
def test_the_missing_edge_in_words(name, words):
    program, size, _ = programs.RACY[name]
    assert any(words in finding.evidence[-1] for finding in found(go(program, size)))


def test_a_fence_orders_one_target_only():
    """The reader hears of the put by way of a third rank."""

    def program(rank):
        data, sig = programs.opened(rank)
        if rank.index == 0:
            rank.put(data, 2, programs.row(1))
            rank.fence()
            rank.notify(sig, 1, 0, 1)
        elif rank.index == 1:
            rank.wait(sig, 0, 1)
            rank.notify(sig, 2, 0, 1)
        else:
            rank.wait(sig, 0, 1)
            rank.load(data, 0, 2)

    (finding,) = found(go(program, 3))
    assert "only by a quiet; there is none between them" in finding.evidence[-1]


def test_one_finding_a_pair_of_sites_and_three_a_run():
    def program(rank):
        data, _ = programs.opened(rank)
        for place in range(0, 8, 2):
            rank.put(data, 0, programs.row(rank.index), place)
        if rank.index == 1:
            rank.load(data, 0, 2)
        else:
            rank.load(data, 0, 2)
            rank.load(data, 2, 2)
            rank.load(data, 4, 2)

    findings = found(go(program, 3))
    assert len(findings) == 3
    assert len({finding.identity for finding in findings}) == 3


def test_rows_of_a_host_tensor_are_apart_and_the_same_row_is_not():
    def host(world, apart):
        out = torch.zeros(world.size, 2).share_memory_()
        world.prepare(out)

        def program(rank, out):
            rank.store(out, programs.row(rank.index), 2 * rank.index if apart else 0)

        for rank in range(world.size):
            world.dispatch(program, out, device=rank)

    for apart in (True, False):
        run = execute(Job(ranks=2, host=lambda world, apart=apart: host(world, apart)))
        assert [finding.kind for finding in found(run)] == [] if apart else ["unordered_write"]


def test_what_survives_a_crash_is_no_race():
    def program(rank):
        data, sig = programs.opened(rank)
        rank.put(data, (rank.index + 1) % rank.size, programs.row(1))
        rank.fence()
        rank.notify(sig, (rank.index + 1) % rank.size, 0, 1)
        rank.wait(sig, 0, 1)
        rank.load(data, 0, 2)

    def host(world):
        for rank in range(world.size):
            world.dispatch(program, device=rank)

    for nth in range(7):
        run = execute(Job(ranks=3, host=host, faults=(Crash(rank=1, nth=nth),)))
        assert run.dead == [1]
        assert found(run) == []
