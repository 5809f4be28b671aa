"""Explorers: a function of their seed, restartable, and each explores what it says."""

import itertools
from typing import Annotated

import pytest
import torch
from msgspec import Meta

from harness import Hold, Plan, scenario, values
from harness.run import execute_plan, explore
from harness.schedule import PCT, POS, PausedRank, PreemptedRank, RandomWalk, SlowRank
from harness.schedule.convert import holds_of
from harness.schedule.pos import dependent


def from_left(size, n):
    return [values((rank - 1) % size, n) for rank in range(size)]


@scenario(reference=from_left)
def ring(rank, n: Annotated[int, Meta(ge=1, le=64)] = 3):
    """Put to the right, fence, notify; wait, load."""
    data = rank.window("data", n, torch.float32)
    cells = rank.window("cells", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(data, right, values(rank.index, n))
    rank.fence()
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(data, 0, n)


@scenario(reference=lambda size: [None] * size)
def drawing(rank):
    """Draws a number, so that the engine repeats the run with generators by rank."""
    cells = rank.window("cells", 1, torch.int32)
    rank.notify(cells, (rank.index + 1) % rank.size, 0, int(torch.randint(1, 9, ())))
    rank.wait(cells, 0, 1)


PLAN = Plan(scenario="ring", params=ring.params(), ranks=4)
SEEDED = {
    "random_walk": RandomWalk,
    "pct1": lambda *seed: PCT(1, 40, *seed),
    "pct2": lambda *seed: PCT(2, 40, *seed),
    "pct3": lambda *seed: PCT(3, 40, *seed),
    "pos": POS,
}
UNSEEDED = {
    "slow_rank": lambda: SlowRank(1),
    "paused_rank": lambda: PausedRank(1, 3),
    "preempted_rank": lambda: PreemptedRank(0, 4),
}
ALL = {name: lambda make=make: make(7) for name, make in SEEDED.items()} | UNSEEDED


def identity(chooser, plan=PLAN, program=ring):
    return explore(plan, program, chooser).run.identity()


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_makes_the_same_choices_and_others_differ(name):
    make = SEEDED[name]
    assert identity(make("root", 3)) == identity(make("root", 3))
    assert len({identity(make("root", seed)) for seed in range(8)}) > 4


@pytest.mark.parametrize("name", ALL)
def test_a_restart_repeats_the_choices(name):
    chooser = ALL[name]()
    first = identity(chooser)
    chooser.restart()
    assert identity(chooser) == first


@pytest.mark.parametrize("name", ALL)
def test_a_program_that_draws_numbers_runs_twice_with_the_same_choices(name):
    plan = Plan(scenario="drawing", params=drawing.params(), ranks=3)
    assert identity(ALL[name](), plan, drawing) == identity(ALL[name](), plan, drawing)


@pytest.mark.parametrize("name", ALL)
def test_an_explorer_leaves_the_default_run(name):
    assert identity(ALL[name]()) != execute_plan(PLAN, ring).identity()


def test_a_slow_rank_moves_when_no_other_can():
    run = explore(PLAN, ring, SlowRank(0)).run
    owners = [event.owner for event in run.events if event.owner < 4]
    # Rank 3 does all that it can without rank 0 before rank 0 does anything but allocate.
    assert owners.index(3) < owners.index(0)
    last_alone = max(i for i, e in enumerate(run.events) if e.owner == 3 and e.kind == "notify")
    assert all(e.kind.startswith("window") for e in run.events[:last_alone] if e.owner == 0)


def test_a_pause_lasts_until_no_other_lane_can_move():
    run = explore(PLAN, ring, PausedRank(2, 5)).run
    mine = [i for i, event in enumerate(run.events) if event.owner == 2]
    between = {e.owner for e in run.events[mine[4] : mine[5]] if e.owner < 4} - {2}
    assert between == {0, 1, 3}


def test_a_preempted_rank_gives_way_once():
    chooser = PreemptedRank(0, 5)
    explore(PLAN, ring, chooser)
    assert chooser.preemptions == 1


def test_pct_at_depth_one_switches_only_where_a_lane_blocks():
    chooser = PCT(1, 40, 11)
    run = explore(PLAN, ring, chooser).run
    lanes = [event.owner for event in run.events if event.owner < 4]
    # With fixed priorities a lane that is left comes back only after those above it are blocked.
    switches = sum(a != b for a, b in itertools.pairwise(lanes))
    assert switches < len(lanes) / 2


def test_unseeded_explorers_keep_the_plan_s_holds():
    default = execute_plan(PLAN, ring)
    held = Plan(scenario="ring", params=ring.params(), ranks=4, schedule=(Hold(1),))
    for make in UNSEEDED.values():
        run = explore(held, ring, make()).run
        late = {hold.op for hold in holds_of(run)}
        assert 1 in late
        assert late != {hold.op for hold in holds_of(default)}


@pytest.mark.parametrize(("one", "other", "expected"), [
    ((0, 1, 0, 4, True), (0, 1, 0, 4, False), True),
    ((0, 1, 0, 4, False), (0, 1, 0, 4, False), False),
    ((0, 1, 0, 4, True), (0, 2, 0, 4, True), False),
    ((0, 1, 0, 4, True), (1, 1, 0, 4, True), False),
    ((0, 1, 0, 4, True), (0, 1, 4, 8, True), False),
    ((0, 1, 0, 4, True), (0, 1, 3, 8, False), True),
    (None, (0, 1, 0, 4, True), False),
])
def test_events_depend_when_they_overlap_and_one_writes(one, other, expected):
    assert dependent(one, other) is expected
    assert dependent(other, one) is expected
