"""The rungs and the field's protocols are right, round after round.

For 1 to 8 ranks, on any schedule, with any sizes.
"""

from collections import Counter

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Hold, Plan, Preempt, Visibility, registry, run
from harness.finding import Outcome, Verdict
from harness.hunt import Order, hunt
from harness.plan import CACHES

LADDER = (
    "hello_rank",
    "programming_model",
    "window_buffer",
    "barrier",
    "remote_load_store",
    "put_get",
    "dynamic_rank_count",
    "allreduce_mesh",
    "allreduce_twophase",
    "allreduce_ring",
    "allreduce_builtin",
    "broadcast",
    "allgather",
    "reduce_scatter",
    "alltoall",
    "alltoallv",
    "together",
)
# Protocols that are no rungs: the right forms of what went wrong in the field.
FIELD = (
    "credit_barrier",
    "dissemination",
    "pipeline",
    "groups",
    "scratch",
    "stages",
    "domain",
    "admission",
    "shards",
    "far_offsets",
    "channels",
    "cache_lines",
    "two_lanes",
    "streams",
)
WORLDS = range(1, 9)
SIZES = ((4, 7), (7, 4), (1,), (64, 1, 33), (2, 7, 3))

rungs = pytest.mark.parametrize("rung", LADDER + FIELD)
worlds = pytest.mark.parametrize("ranks", WORLDS)
CACHED = (
    Visibility(delayed=True), Visibility(stale=True), Visibility(stale=True, delayed=True),
    Visibility(lines=True), Visibility(lines=True, stale=True),
)
holds = st.builds(Hold, op=st.integers(0, 120), until=st.integers(0, 40))
preempts = st.builds(Preempt, at=st.integers(0, 300), to=st.integers(0, 7))


def plan_of(rung: str, ranks: int, sizes=(4, 7), schedule=(), **more) -> Plan:
    name = f"collectives.{rung}"
    return Plan(
        scenario=name,
        params=registry.find(name).params(sizes=sizes),
        ranks=ranks,
        schedule=tuple(schedule),
        **more,
    )


def assert_right(outcome: Outcome) -> None:
    """Right by this test's own comparison, whatever the checkers look at, and silent in them."""
    record = outcome.run
    assert record.failures == []
    assert record.ended == "returned"
    assert record.observed.keys() == record.expected.keys()
    for label, wanted in record.expected.items():
        for seen, due in zip(record.observed[label], wanted, strict=True):
            assert torch.equal(seen, due), label
    assert outcome.findings == ()
    assert outcome.verdict == Verdict.PASS


@rungs
@worlds
def test_right_in_the_default_run(rung, ranks):
    for sizes in SIZES:
        assert_right(run(plan_of(rung, ranks, sizes)))


@rungs
@worlds
def test_right_with_its_own_defaults(rung, ranks):
    scenario = registry.find(f"collectives.{rung}")
    assert_right(run(Plan(scenario=scenario.name, params=scenario.params(), ranks=ranks), races=True))


@rungs
@worlds
def test_right_when_every_operation_is_held_to_its_last_legal_moment(rung, ranks):
    default = run(plan_of(rung, ranks, (4, 7, 2)))
    count = default.run.operations
    held = run(plan_of(rung, ranks, (4, 7, 2), [Hold(op) for op in range(count)]))
    assert held.run.deviations_applied == count
    assert_right(held)


@rungs
@pytest.mark.parametrize("ranks", [2, 3])
def test_right_with_any_single_operation_held(rung, ranks):
    for op in range(run(plan_of(rung, ranks)).run.operations):
        assert_right(run(plan_of(rung, ranks, schedule=[Hold(op)])))


@rungs
@pytest.mark.parametrize("ranks", [1, 4])
def test_right_under_eager_delivery(rung, ranks):
    assert_right(run(plan_of(rung, ranks, visibility=Visibility(delivery="eager"))))


@rungs
@pytest.mark.parametrize(("ranks", "torn"), [
    pytest.param(ranks, torn, marks=() if ranks % 3 == index else pytest.mark.nightly)
    for ranks in WORLDS for index, torn in enumerate((4, 8, 64))  # by day each once with every world
])
def test_right_when_puts_and_gets_tear(rung, ranks, torn):
    """Whole or in pieces, held to the last moment or overtaken again and again."""
    visibility = Visibility(torn=torn)
    default = run(plan_of(rung, ranks, (4, 7, 2), visibility=visibility), races=True)
    assert_right(default)
    held = [Hold(op) for op in range(default.run.operations)]
    assert_right(run(plan_of(rung, ranks, (4, 7, 2), held, visibility=visibility)))
    turns = [Preempt(at, (at * 7 + torn) % 5) for at in range(0, 200, 3)]
    assert_right(run(plan_of(rung, ranks, (2, 33), turns, visibility=visibility), races=True))


@rungs
@settings(max_examples=25, derandomize=True, deadline=None, database=None)
@given(
    ranks=st.integers(1, 8),
    torn=st.sampled_from([4, 8, 64]),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
    schedule=st.lists(st.one_of(holds, preempts), max_size=12),
)
def test_right_on_drawn_schedules_when_puts_and_gets_tear(rung, ranks, torn, sizes, schedule):
    assert_right(run(plan_of(rung, ranks, sizes, schedule, visibility=Visibility(torn=torn))))


# Where a number or a Set stands in one 64-byte line with what others write.
SHARED_LINES = frozenset(("alltoallv", "scratch", "stages"))


@rungs
@pytest.mark.parametrize(
    ("ranks", "caches"),
    [
        pytest.param(ranks, caches, marks=() if index in (at, at + 1) else pytest.mark.nightly)
        for at, ranks in enumerate((1, 2, 3, 5)) for index, caches in enumerate(CACHED)
    ],
    ids=lambda value: str(value) if isinstance(value, int)
    else "-".join(name for name in CACHES if getattr(value, name)),
)
def test_right_where_cores_have_caches(rung, ranks, caches):
    if caches.lines and rung in SHARED_LINES:
        caches = msgspec.structs.replace(caches, lines=False, delayed=True)
    default = run(plan_of(rung, ranks, visibility=caches), races=True)
    assert_right(default)
    held = [Hold(op) for op in range(default.run.operations)]
    turns = [Preempt(at, (at * 7 + ranks) % 5) for at in range(0, 200, 3)]
    for schedule in (held, turns, held + turns):
        assert_right(run(plan_of(rung, ranks, (2, 33), schedule, visibility=caches), races=True))


@pytest.mark.parametrize("rung", sorted(SHARED_LINES))
def test_what_shares_a_line_is_found(rung):
    scenario = registry.find(f"collectives.{rung}")
    found = hunt(Order(scenario, 1, caches=True, plans_max=20))
    assert found.finding is not None
    assert found.outcome.plan.visibility.lines


@rungs
@worlds
def test_nothing_races(rung, ranks):
    default = run(plan_of(rung, ranks, (4, 7, 2)), races=True)
    assert_right(default)
    held = [Hold(op) for op in range(0, default.run.operations, 2)]
    assert_right(run(plan_of(rung, ranks, (4, 7, 2), held), races=True))
    turns = [Preempt(at, at % 5) for at in range(0, 200, 3)]
    assert_right(run(plan_of(rung, ranks, (4, 7, 2), turns), races=True))


@rungs
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(
    ranks=st.integers(1, 8),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    schedule=st.lists(st.one_of(holds, preempts), max_size=12),
)
def test_right_on_drawn_schedules(rung, ranks, sizes, schedule):
    assert_right(run(plan_of(rung, ranks, sizes, schedule)))


@rungs
@settings(max_examples=15, derandomize=True, deadline=None, database=None)
@given(
    ranks=st.integers(2, 5),
    to=st.lists(st.integers(0, 7), min_size=40, max_size=160),
)
def test_right_when_preempted_again_and_again(rung, ranks, to):
    """A schedule that deviates at nearly every point: far from the default run."""
    schedule = [Preempt(at, other) for at, other in enumerate(to)]
    assert_right(run(plan_of(rung, ranks, (4, 7), schedule)))


@pytest.mark.parametrize(
    ("rung", "credits"), [("allgather", {"cells"}), ("together", {"credit", "credits"})]
)
@worlds
def test_credits_are_given_back_to_the_last_one(rung, credits, ranks):
    """Every cell is at zero again; by this test's own count, and the leak checker is silent too."""
    for schedule in ((), [Hold(op) for op in range(0, 200, 2)], [Preempt(at, at) for at in range(90)]):
        outcome = run(plan_of(rung, ranks, (4, 7, 2), schedule))
        left, given = Counter(), 0
        for _, kind, window, peer, lo, _, value, *_ in outcome.run.raw:
            if kind in ("notify", "signal") and outcome.run.names[window].name in credits:
                left[window, peer, lo] += value
                given += value > 0
        assert given >= 3 * ranks * (ranks - 1)
        assert not any(left.values())
        assert_right(outcome)


def test_the_ladder_is_registered_whole():
    known = [name for name in registry.scenarios() if name.startswith("collectives.")]
    assert sorted(known) == sorted(f"collectives.{rung}" for rung in LADDER + FIELD)


def test_a_mesh_of_four_stays_small_enough_to_explore():
    assert len(run(plan_of("allreduce_mesh", 4)).run.raw) <= 250
