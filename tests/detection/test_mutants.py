"""Each mutant is caught as it declares, in the world it declares, and its twin stays silent."""

import random
from collections.abc import Iterator
from statistics import median

import pytest
import torch

from harness import Hold, Plan, Preempt, Visibility, registry, run
from harness.finding import Outcome, Verdict
from harness.hunt import Order, hunt
from harness.scenario import Mutant, Scenario
from systems.collectives import far_offsets

MUTANTS = [
    (scenario, mutant)
    for scenario in registry.scenarios().values()
    for mutant in scenario.mutants.values()
    if not scenario.name.startswith("store.")  # test_store_mutants: they need parameters and faults
]
mutants = pytest.mark.parametrize(
    ("scenario", "mutant"), MUTANTS, ids=[f"{s.name}-{m.name}" for s, m in MUTANTS]
)

# The ladder's known pitfalls, in the order in which users of PyPTO report them, and its traps.
PITFALLS = {
    "scalar argument before tensors": "programming_model.scalar_before_tensor",
    "rank identity read once": "hello_rank.identity_read_once",
    "window used as a tensor": "window_buffer.window_used_as_tensor",
    "window loaded as if shared": "window_buffer.window_loaded_as_shared",
    "tensor taken for a window": "window_buffer.tensor_taken_for_window",
    "Set/Eq on a shared cell": "barrier.set_and_eq",
    "Set overwrites an earlier arrival": "barrier.set_for_add",
    "access before the barrier": "window_buffer.read_before_barrier",
    "put without notify": "put_get.put_without_notify",
    "put without wait": "put_get.put_without_wait",
    "world size in a host shape": "dynamic_rank_count.world_size_in_shape",
    "missing barrier": "allreduce_mesh.missing_barrier",
    "missing share_memory_": "hello_rank.missing_share_memory",
    "bytes against rank count": "window_buffer.bytes_against_rank_count",
    "dispatch loop too short": "dynamic_rank_count.dispatch_loop_too_short",
    "card taken for a rank": "hello_rank.device_id_as_rank",
    "two barriers on one row": "allreduce_twophase.two_barriers_one_row",
    "left neighbour by truncating modulo": "allreduce_ring.truncating_modulo",
    "mesh's signal shape given to the ring": "allreduce_builtin.mesh_signals_for_ring",
    "ring's signal shape given to the mesh": "allreduce_builtin.ring_signals_for_mesh",
    "broadcast from one's own slice": "broadcast.own_slice",
    "gathered into the wrong slot": "allgather.gathered_into_the_wrong_slot",
    "own row left out of the reduction": "reduce_scatter.own_row_left_out",
    "source and result in one window": "alltoall.source_and_result_in_one_window",
    "one window for two signal layouts": "together.one_window_for_two_layouts",
}

# The families of bugs seen in the field (public reports, and pypto.md 5.4), and who covers each.
FAMILIES = {
    "sticky Set(1)/Ge(1) flag": (
        "credit_barrier.sticky_flag", "allreduce_twophase.sticky_arrivals", "barrier.epoch_forgotten",
        "stages.stage_never_cleaned",
    ),
    "epilogue returns too many credits": (
        "credit_barrier.one_credit_too_many", "allgather.too_many_credits_returned",
    ),
    "epilogue returns too few credits": (
        "credit_barrier.last_credit_kept", "allgather.credits_kept", "together.credit_kept",
    ),
    "reset by Set 0 races with an early add": ("credit_barrier.reset_by_set",),
    "threshold grows faster than the adds": (
        "barrier.threshold_grows_faster", "allreduce_builtin.all_calls_counted",
    ),
    "adds grow faster than the threshold": ("barrier.epoch_added",),
    "Eq that can be overshot": ("credit_barrier.waits_for_exactly_one", "barrier.set_and_eq"),
    "butterfly barrier, P not a power of two": (
        "dissemination.butterfly", "dissemination.logarithm_rounded_down",
    ),
    "one cumulative counter for several chunks": (
        "pipeline.one_counter_for_all_chunks", "alltoall.one_counter_for_all_sources",
    ),
    "two groups share a slot": ("groups.groups_share_a_slot",),
    "numbers of another group": ("groups.place_for_number",),
    "flag area moves with the message size": ("scratch.flags_move_with_the_size",),
    "stage cleaned while a fast peer filled it": ("stages.next_stage_cleaned",),
    "window zeroed after it became visible": ("domain.pad_zeroed_after_it_was_visible",),
    "missing read-complete barrier": (
        "allgather.missing_read_barrier", "allreduce_mesh.missing_second_barrier",
        "reduce_scatter.readers_not_awaited", "broadcast.readers_not_awaited",
    ),
    "rank-local early exit skips a collective": (
        "admission.own_room_decides", "allreduce_twophase.empty_chunk_returns_early",
        "reduce_scatter.empty_chunk_leaves_early",
    ),
    "wrong neighbour, hidden at P = 2": (
        "allreduce_ring.announces_to_left", "allreduce_mesh.neighbours_only",
    ),
    "only rank 0 loads": ("shards.only_rank_zero_loads",),
    "rank argument left at its default": (
        "shards.rank_left_at_its_default", "together.root_left_at_its_default",
    ),
    "32-bit element offset": (
        "far_offsets.signed_offset_wraps", "far_offsets.unsigned_offset_wraps",
    ),
    "bound check on the wrong side": ("channels.limit_multiplied",),
    "strided input treated as dense": ("shards.strided_read_as_dense",),
    "a Set publishes its whole line": ("cache_lines.packed_cells",),
    "first ring read has nothing to wait for": ("allreduce_ring.first_pull_unguarded",),
}
HIDDEN_AT_TWO = "wrong neighbour, hidden at P = 2"

# Mutants that pass the default run of their smallest world: one deviation that shows each of them.
SHOWN_BY = {
    "allgather.credit_overtakes_row": Hold(0),
    "allgather.credits_still_in_flight": Hold(6),
    "allreduce_twophase.chunks_overtaken": Hold(0),
    "alltoall.fence_for_quiet": Hold(1),
    "alltoall.not_settled": Hold(0),
    "alltoall.places_move_with_the_size": Hold(8),
    "alltoallv.arrival_overtakes_block": Hold(0),
    "alltoallv.count_read_before_arrival": Hold(1),
    "alltoallv.places_move_with_the_size": Hold(8),
    "barrier.fence_for_quiet": Hold(0),
    "cache_lines.packed_cells": Hold(1),
    "groups.groups_share_a_slot": Hold(0),
    "pipeline.one_counter_for_all_chunks": Hold(0),
    "scratch.flags_move_with_the_size": Hold(0),
    "put_get.put_without_wait": Hold(0),
    "put_get.notify_overtakes_put": Hold(0),
    "put_get.get_without_quiet": Hold(7),
    "remote_load_store.load_before_sent": Hold(0),
    "two_lanes.fence_is_the_other_lanes": Hold(0),
    "two_lanes.credit_before_the_copy": Preempt(52, 0),
    "streams.event_recorded_before_the_copy": Hold(2),
    "remote_load_store.sync_without_quiet": Hold(0),
    "together.credit_kept": Hold(2),
}


def plan_of(scenario: Scenario, mutant: Mutant | None, ranks: int, schedule=()) -> Plan:
    return Plan(
        scenario=scenario.name,
        params=scenario.params(),
        ranks=ranks,
        bug=mutant.name if mutant else None,
        schedule=tuple(schedule),
        visibility=Visibility(lines=scenario.caches, stale=scenario.caches),
    )


def searched(scenario: Scenario, mutant: Mutant, ranks: int) -> Iterator[Outcome]:
    """The default run, all operations held, each of them held, then some preempted runs."""
    default = run(plan_of(scenario, mutant, ranks), races=mutant.expects.startswith("races/"))
    yield default
    held = [Hold(op) for op in range(default.run.operations)]
    schedules = [held, *([hold] for hold in held)]
    drawn = random.Random(f"{scenario.name} {mutant.name} {ranks}")
    points = default.run.points + 20
    schedules += [
        [Preempt(drawn.randrange(points), drawn.randrange(8)) for _ in range(drawn.randint(1, 4))]
        for _ in range(40)
    ]
    for schedule in schedules:
        yield run(plan_of(scenario, mutant, ranks, schedule))


def shows(outcome: Outcome, mutant: Mutant) -> bool:
    return any(finding.name == mutant.expects for finding in outcome.findings)


@mutants
def test_the_declared_finding_is_found_and_the_twin_is_silent(scenario, mutant):
    first = next((o for o in searched(scenario, mutant, mutant.ranks) if shows(o, mutant)), None)
    assert first is not None
    twin = run(plan_of(scenario, None, mutant.ranks, first.plan.schedule))
    assert twin.findings == ()
    assert twin.verdict == Verdict.PASS


@mutants
def test_no_smaller_world_shows_it(scenario, mutant):
    for ranks in range(scenario.ranks[0], mutant.ranks):
        for outcome in searched(scenario, mutant, ranks):
            assert outcome.findings == (), outcome.plan


@mutants
def test_larger_worlds_show_it_too(scenario, mutant):
    """What is found in the smallest world is not lost in a larger one (the kind may differ)."""
    ranks = mutant.ranks + 2
    assert any(outcome.findings for outcome in searched(scenario, mutant, ranks))


@pytest.mark.parametrize("name", SHOWN_BY)
def test_one_deviation_shows_what_the_default_run_hides(name):
    module, _, bug = name.partition(".")
    scenario = registry.find(f"collectives.{module}")
    mutant = scenario.mutants[bug]
    assert run(plan_of(scenario, mutant, mutant.ranks)).findings == ()
    schedule = [SHOWN_BY[name]]
    shown = run(plan_of(scenario, mutant, mutant.ranks, schedule))
    assert shows(shown, mutant)
    assert shown.run.deviations_applied == 1
    twin = run(plan_of(scenario, None, mutant.ranks, schedule))
    assert twin.run.deviations_applied == 1
    assert twin.findings == ()


def test_the_default_run_hides_no_others():
    hidden = {
        f"{scenario.name.partition('.')[2]}.{mutant.name}"
        for scenario, mutant in MUTANTS
        if scenario.name.startswith("collectives.")
        and not run(plan_of(scenario, mutant, mutant.ranks)).findings
    }
    assert hidden == set(SHOWN_BY)


@mutants
def test_the_docstring_names_finding_and_world(scenario, mutant):
    text = " ".join(mutant.doc.split())
    assert f"Finding: {mutant.expects}" in text
    assert f"Smallest world: {mutant.ranks}" in text


@mutants
def test_planting_leaves_the_twin_as_it_was(scenario, mutant):
    plan = plan_of(scenario, None, mutant.ranks)
    before = run(plan).run.identity()
    run(plan_of(scenario, mutant, mutant.ranks))
    assert run(plan).run.identity() == before


def test_every_pitfall_has_its_mutant():
    known = {f"{s.name}.{m.name}" for s, m in MUTANTS}
    assert {f"collectives.{name}" for name in PITFALLS.values()} <= known


def test_every_family_of_the_field_names_mutants_that_exist():
    known = {f"{s.name}.{m.name}": m for s, m in MUTANTS}
    for family, names in FAMILIES.items():
        assert names, family
        for name in names:
            assert f"collectives.{name}" in known, f"{family}: {name}"
    for name in FAMILIES[HIDDEN_AT_TWO]:
        assert known[f"collectives.{name}"].ranks == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hunt_finds_each_family_in_few_plans(family):
    """In every world from the smallest on, which says more than root seeds do: the first plans of a
    hunt are the same for all of them. Whatever it finds first counts, a race that is yet to show too."""
    for name in FAMILIES[family]:
        module, _, bug = name.partition(".")
        scenario = registry.find(f"collectives.{module}")
        smallest, largest = scenario.mutants[bug].ranks, scenario.ranks[1]
        hunts = [
            hunt(Order(scenario, ranks, bug=bug, ranks=(ranks, ranks), plans_max=30))
            for ranks in range(smallest, largest + 1)
        ]
        assert all(found.finding for found in hunts)
        assert median(found.statistics.plans for found in hunts) <= 3


def test_an_offset_beyond_two_to_the_31_is_exact_and_its_mutants_wrap():
    mutants = registry.find("collectives.far_offsets").mutants
    signed = mutants["signed_offset_wraps"].replacement
    unsigned = mutants["unsigned_offset_wraps"].replacement
    for tokens, width in ((65536, 32768), (65536, 65536), (131072, 131072), (46341, 46341)):
        for source in range(8):
            exact = source * tokens * width
            assert far_offsets.offset(source, tokens, width) == exact
            as_32_bits = torch.tensor(exact, dtype=torch.int64).to(torch.int32).item()
            assert signed(source, tokens, width) == as_32_bits
            assert unsigned(source, tokens, width) == as_32_bits % 2**32
