"""Explored runs become deviations and back: the same identity, the same values."""

from typing import Annotated

import msgspec
import pytest
import torch
from msgspec import Meta

from harness import Hold, PeerLost, Plan, Preempt, registry, run, scenario, values
from harness.errors import EngineError
from harness.run import execute_plan, explore
from harness.schedule import (
    PCT,
    POS,
    PausedRank,
    PreemptedRank,
    RandomWalk,
    SlowRank,
    deviations_of,
)
from harness.schedule.convert import holds_of

N = 2


@scenario(reference=lambda size: [values((rank - 1) % size, N) for rank in range(size)])
def unfenced(rank):
    """Put and notify without a fence: fails under some schedules."""
    data = rank.window("data", N, torch.float32)
    cells = rank.window("cells", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(data, right, values(rank.index, N))
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(data, 0, N)


@scenario(reference=lambda size: [None] * size)
def everything(rank):
    """Every kind of one-sided operation, quiet, sync, a poll."""
    data = rank.window("data", 4 * N, torch.float32)
    cells = rank.window("cells", 3, torch.int32)
    mine = rank.buffer(N, torch.float32)
    right, left = (rank.index + 1) % rank.size, (rank.index - 1) % rank.size
    rank.store(mine, values(rank.index, N))
    rank.put_nbi(data, right, mine)
    rank.put_signal(data, left, values(rank.index, N), N, cells, 0, 1)
    rank.remote_store(data, right, values(rank.index, N), 2 * N)
    rank.quiet()
    rank.get_nbi(mine, right, data)
    rank.notify(cells, left, 1, 2)
    rank.fence()
    rank.notify(cells, left, 2, 3)
    rank.get(mine, left, data, N)
    while int(rank.load(cells, 2, 1)[0]) < 3:
        pass
    rank.wait(cells, 0, 1)
    rank.sync()
    rank.remote_load(data, left, 0, N)
    rank.barrier()


@scenario(reference=lambda size: [None] * size)
def stuck(rank):
    """Rank 0 waits for a notify that nobody sends; rank 1 raises."""
    cells = rank.window("cells", 1, torch.int32)
    rank.notify(cells, 0, 0, 1)
    if rank.index == 1:
        raise ValueError("rank 1")
    rank.wait(cells, 0, 2 * rank.size)


@scenario(reference=lambda size: [None] * size)
def survivors(rank):
    """Everybody waits for everybody; whoever sees a lost peer gives up."""
    cells = rank.window("cells", 1, torch.int32)
    for peer in range(rank.size):
        rank.notify(cells, peer, 0, 1)
    try:
        rank.wait(cells, 0, rank.size)
    except PeerLost:
        return


PROGRAMS = {
    "unfenced": (unfenced, ()),
    "everything": (everything, ()),
    "stuck": (stuck, ()),
    "survivors": (survivors, ({"fault": "crash", "rank": 1, "nth": 2},)),
}
EXPLORERS = {
    "random_walk": lambda points, seed: RandomWalk(seed),
    "pct1": lambda points, seed: PCT(1, points, seed),
    "pct2": lambda points, seed: PCT(2, points, seed),
    "pct3": lambda points, seed: PCT(3, points, seed),
    "pos": lambda points, seed: POS(seed),
    "slow_rank": lambda points, seed: SlowRank(seed % 3),
    "paused_rank": lambda points, seed: PausedRank(seed % 3, seed // 3),
    "preempted_rank": lambda points, seed: PreemptedRank(seed % 3, seed // 3),
}
SEEDS = 32  # 4 programs, 8 explorers: 1,024 runs


def plan_for(name, ranks=3):
    program, faults = PROGRAMS[name]
    made = tuple(msgspec.convert(data, registry.faults()[data["fault"]]) for data in faults)
    return program, Plan(scenario=name, params=program.params(), ranks=ranks, faults=made)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("explorer", EXPLORERS)
def test_a_thousand_runs_there_and_back(name, explorer):
    program, plan = plan_for(name)
    points = execute_plan(plan, program).points
    identities = set()
    for seed in range(SEEDS):
        explored = explore(plan, program, EXPLORERS[explorer](points, seed))
        schedule = deviations_of(plan, program, explored.run)
        back = run(msgspec.structs.replace(plan, schedule=schedule), scenario=program)
        assert back.run.identity() == explored.run.identity()
        assert back.run.value_identity() == explored.run.value_identity()
        assert [f.identity for f in back.findings] == [f.identity for f in explored.findings]
        assert back.run.deviations_applied >= len(schedule)
        identities.add(explored.run.identity())
    assert len(identities) > 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_default_run_needs_no_deviation(name):
    program, plan = plan_for(name)
    assert deviations_of(plan, program, execute_plan(plan, program)) == ()


def test_one_hold_converts_to_one_hold():
    program, plan = plan_for("unfenced")
    held = msgspec.structs.replace(plan, schedule=(Hold(2, 3),))
    schedule = deviations_of(plan, program, execute_plan(held, program))
    assert [type(deviation) for deviation in schedule] == [Hold]


def test_one_preempt_converts_to_itself():
    program, plan = plan_for("unfenced")
    points = execute_plan(plan, program).points
    for at in range(0, points, 5):
        preempted = msgspec.structs.replace(plan, schedule=(Preempt(at),))
        record = execute_plan(preempted, program)
        schedule = deviations_of(plan, program, record)
        back = execute_plan(msgspec.structs.replace(plan, schedule=schedule), program)
        assert back.identity() == record.identity()


def test_a_signal_right_behind_its_late_data_is_not_late_itself():
    plan = Plan(scenario="everything", params=everything.params(), ranks=2)
    default = execute_plan(plan, everything)
    data = next(e.number for e in default.events if e.kind == "put_signal")
    held = execute_plan(msgspec.structs.replace(plan, schedule=(Hold(data, 4),)), everything)
    assert [hold.op for hold in holds_of(held)] == [data]


def test_an_overrun_converts():
    @scenario(reference=lambda size: [None] * size)
    def endless(rank):
        cells = rank.window("cells", 1, torch.int32)
        while True:
            rank.notify(cells, 0, 0, 1)

    plan = Plan(scenario="endless", params=endless.params(), ranks=2)
    explored = explore(plan, endless, RandomWalk(3), events_max=300)
    assert explored.run.ended == "overrun"
    schedule = deviations_of(plan, endless, explored.run)
    again = execute_plan(
        msgspec.structs.replace(plan, schedule=schedule), endless, events_max=300
    )
    assert again.identity() == explored.run.identity()


def test_a_program_that_depends_on_something_else_is_told_apart():
    calls = []

    @scenario(reference=lambda size, n: [None] * size)
    def moody(rank, n: Annotated[int, Meta(ge=0, le=1)] = 0):
        calls.append(1)
        cells = rank.window("cells", 1, torch.int32)
        for _ in range(len(calls) % 5):
            rank.notify(cells, 0, 0, 1)

    plan = Plan(scenario="moody", params=moody.params(), ranks=2)
    explored = explore(plan, moody, RandomWalk(1))
    with pytest.raises(EngineError, match="differs at event"):
        deviations_of(plan, moody, explored.run)
