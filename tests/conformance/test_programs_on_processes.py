"""Programs that no rung has: polls, timeouts, sleeps, tensors in flight, lost peers, nested groups.

Conducted, each makes the same record on both fabrics.
"""

import random
import sys
import time

import msgspec
import pytest
import torch

from faults.environment import Crash
from harness import Hold, PeerLost, Plan, Preempt, Scenario, WaitCmp, registry, run, scenario, values
from harness.scenario import NoParams
from harness.supervise import Limits

N = 4


def nothing(size):
    return [None] * size


@scenario(reference=nothing)
def polls(rank):
    """Reads a cell over and over until its neighbour has set it."""
    cells = rank.window("cells", 1, torch.int32)
    if rank.index:
        while not int(rank.load(cells, 0, 1)):
            pass
    rank.notify(cells, (rank.index + 1) % rank.size, 0, 1)


@scenario(reference=nothing)
def polls_for_ever(rank):
    """Nobody ever sets the cell."""
    cells = rank.window("cells", 1, torch.int32)
    while not int(rank.remote_load(cells, (rank.index + 1) % rank.size, 0, 1)):
        pass


@scenario(reference=nothing)
def gives_up(rank):
    """A wait that ends by its timeout, one that does not, and virtual time."""
    cells = rank.window("cells", 2, torch.int32)
    start = time.monotonic()
    assert not rank.wait(cells, 0, 1, timeout=3600.0)
    time.sleep(10)
    assert 3610 <= time.monotonic() - start < 3611
    rank.notify(cells, (rank.index + 1) % rank.size, 1, 1)
    assert rank.wait(cells, 1, 1, timeout=3600.0, cmp=WaitCmp.Eq)


@scenario(reference=nothing)
def in_flight(rank):
    """Tensors that are written and read while operations use them."""
    data = rank.window("data", 2 * N, torch.float32)
    source, landed = values(rank.index, N), torch.zeros(N)
    rank.put_nbi(data, (rank.index + 1) % rank.size, source)
    source += 1
    rank.get_nbi(landed, rank.index, data, N)
    rank.store(data, landed)
    rank.quiet()


@scenario(reference=lambda size: [torch.arange(float(size)) for _ in range(size)])
def survives(rank):
    """Whoever loses a peer says so; in a world that loses nobody all is well."""
    row = rank.window("row", rank.size, torch.float32)
    try:
        for peer in range(rank.size):
            rank.put(row, peer, torch.tensor([float(rank.index)]), rank.index)
        rank.barrier()
    except PeerLost as lost:
        return lost.rank
    return rank.load(row, 0, rank.size)


@scenario(reference=nothing)
def groups(rank):
    """Windows and rendezvous of overlapping groups, buffers between them, a window freed early."""
    pair = sorted({rank.index, rank.index ^ 1} & set(range(rank.size)))
    near = rank.window("near", 1, torch.int32, group=pair)
    scratch = rank.buffer(3, torch.int16)
    rank.store(scratch, torch.tensor([1, 2, 3], dtype=torch.int16))
    far = rank.window("far", 3, torch.int16)
    rank.put(far, rank.size - 1, scratch)
    rank.barrier(pair)
    near.free()
    rank.sync()
    rank.load(near, 0, 1)


@scenario(reference=nothing)
def draws(rank):
    """Random numbers of each rank's own decide what it does."""
    cells = rank.window("cells", 8, torch.int32)
    for _ in range(random.randrange(1, 5)):
        rank.notify(cells, random.randrange(rank.size), int(torch.randint(8, (1,))), 1)
    rank.barrier()


PROGRAMS = [polls, polls_for_ever, gives_up, in_flight, survives, groups, draws]
SCHEDULES = [(), (Hold(op=0, until=0), Preempt(at=2, to=1), Preempt(at=5, to=0)), (Hold(op=2, until=7),)]
ATTRIBUTES = (
    "awaited", "sources", "calls", "points", "operations", "deviations_applied", "ended", "dead",
    "peers_lost", "fired", "seen", "dispatched", "blocked", "livelock", "guards_intact",
)


def alike(plan, made):
    simulated, real = run(plan, scenario=made), run(plan, "processes", scenario=made)
    one, other = simulated.run, real.run
    assert other.identity() == one.identity()
    assert other.value_identity() == one.value_identity()
    assert [f.message for f in real.findings] == [f.message for f in simulated.findings]
    assert real.notes == simulated.notes
    for attribute in ATTRIBUTES:
        assert getattr(other, attribute) == getattr(one, attribute), attribute
    assert [(t.number, t.at, t.stage, t.writes) for t in other.touched] == [
        (t.number, t.at, t.stage, t.writes) for t in one.touched
    ]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["default", "deviating", "held"])
@pytest.mark.parametrize("made", PROGRAMS, ids=lambda made: made.name)
def test_the_record_is_the_same(made, schedule):
    alike(Plan(scenario=made.name, params=made.params(), ranks=3, schedule=schedule), made)


@pytest.mark.parametrize("nth", [1, 3, 5])
def test_a_lost_peer_is_the_same(nth):
    plan = Plan(
        scenario="survives", params=survives.params(), ranks=3, faults=(Crash(rank=1, nth=nth),)
    )
    alike(plan, survives)


# Several lanes of a rank ----------------------------------------------------------------------------


def two_lanes(deed):
    """A scenario of two dispatches with two lanes each, which say what `deed` returned."""

    def host(world, params):
        cells = world.alloc([4], torch.int32, name="cells")
        data = world.alloc([N], torch.float32, name="data")
        for _ in range(2):
            for rank in range(world.size):
                world.dispatch(deed, cells, data, device=rank, lanes=2)
        return []

    return Scenario(name=deed.__name__, params=NoParams, host=host, reference=lambda params, size: [])


def shares_objects(rank, cells, data):
    """The first lane leaves a Python object to the second, which is drawn by both."""
    if rank.lane == 0:
        BOX[rank.index] = random.randrange(100), int(torch.randint(100, (1,)))
        rank.notify(cells, rank.index, 0, 1)
        return BOX[rank.index]
    rank.wait(cells, 0, 1)
    with torch.no_grad():
        rank.notify(cells, (rank.index + 1) % rank.size, 1, 1)
        rank.wait(cells, 1, 1)
        assert not torch.is_grad_enabled()
    return BOX.pop(rank.index, None), random.randrange(100)


def dies_in_one_lane(rank, cells, data):
    """One lane waits for ever, the other goes on until a fault kills the rank."""
    if rank.lane:
        rank.wait(cells, 0, 9)
    for peer in range(rank.size):
        rank.put(data, peer, values(rank.index, N))
    rank.sync()


def raises_in_the_other(rank, cells, data):
    """The second lane of one rank raises, and of another gives a wait up."""
    if rank.lane and rank.index == 1:
        raise ValueError("the second lane")
    if rank.lane:
        assert not rank.wait(cells, 2, 1, timeout=0.5)
        time.sleep(1)
    rank.put_nbi(data, (rank.index + 1) % rank.size, values(rank.index, N))
    rank.quiet()


def frees_too_early(rank, cells, data):
    """One lane frees what the other still uses."""
    if rank.lane:
        rank.wait(cells, 3, 1)
        data.free()
    else:
        rank.put(data, rank.index, values(rank.index, N))
        rank.notify(cells, rank.index, 3, 1)
        rank.fence()
        rank.load(data, 0, N)


def meets_at_last(rank, cells, data):
    """What is blocked would complete a rendezvous, and begin the next dispatch."""
    if rank.lane and rank.index == 0:
        rank.wait(cells, 0, 1)
    rank.store(data, values(rank.index, N))


BOX = {}
LANES = [shares_objects, dies_in_one_lane, raises_in_the_other, frees_too_early, meets_at_last]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["default", "deviating", "held"])
@pytest.mark.parametrize("deed", LANES, ids=lambda deed: deed.__name__)
def test_the_record_of_several_lanes_is_the_same(deed, schedule):
    made = two_lanes(deed)
    plan = Plan(scenario=made.name, params=NoParams(), ranks=2, schedule=schedule)
    if deed is dies_in_one_lane:
        plan = msgspec.structs.replace(plan, faults=(Crash(rank=1, nth=2),))
    alike(plan, made)


def test_the_lanes_of_a_rank_share_its_process_in_natural_order_too():
    made = two_lanes(shares_objects)
    plan = Plan(scenario=made.name, params=NoParams(), ranks=2)
    found = [run(plan, "processes", scenario=made, natural=seed).run for seed in (1, 2)]
    for record in found:
        assert all(first == second[0] for (first, second), _ in record.results)  # of dispatch 0


def test_an_exit_in_any_lane_is_the_end_of_its_process():
    def exits(rank, cells, data):
        try:
            if rank.lane:
                sys.exit(3)
            rank.wait(cells, 0, 1)
        finally:
            BOX.clear()

    made = two_lanes(exits)
    plan = Plan(scenario=made.name, params=NoParams(), ranks=2)
    for natural in (None, 1):
        outcome = run(plan, "processes", scenario=made, natural=natural)
        assert outcome.findings[0].kind == "rank_exited"
        assert "exit code 3" in outcome.findings[0].message


@scenario(reference=nothing)
def each_waits_for_the_other(rank):
    """Both would make the same operation next, as the world counts them."""
    cells = rank.window("cells", 1, torch.int32)
    rank.wait(cells, 0, 1)
    rank.notify(cells, 1 - rank.index, 0, 1)


def test_the_next_steps_of_blocked_lanes_do_not_meet():
    plan = Plan(
        scenario=each_waits_for_the_other.name, params=NoParams(), ranks=2,
        schedule=(Hold(op=0, until=9),),
    )
    alike(plan, each_waits_for_the_other)


HITS = {"killed": 5, "exits": 3, "native_abort": 7, "never_starts": None}


@pytest.mark.parametrize("natural", [None, 1], ids=["conducted", "natural"])
@pytest.mark.parametrize("hit", HITS)
@pytest.mark.parametrize("name", ["collectives.two_lanes", "collectives.streams"])
def test_the_lanes_of_a_rank_die_with_its_process(name, hit, natural):
    nth = {} if HITS[hit] is None else {"nth": HITS[hit]}
    fault = registry.faults()[hit](rank=1, **nth)
    params = registry.find(name).params()
    plan = Plan(scenario=name, params=params, ranks=3, faults=(fault,))
    outcome = run(plan, "processes", natural=natural)
    assert outcome.findings == ()
    assert (outcome.run.dead, sorted(outcome.run.peers_lost)) == ([1], [0, 2])


@pytest.mark.parametrize("natural", [None, 1], ids=["conducted", "natural"])
def test_a_lane_that_stands_still_is_named_with_its_stack(natural):
    def loops(rank, cells, data):
        while rank.lane and rank.index:
            pass
        rank.wait(cells, 0, 1)

    made = two_lanes(loops)
    plan = Plan(scenario=made.name, params=NoParams(), ranks=2)
    outcome = run(
        plan, "processes", scenario=made, natural=natural, limits=Limits(operation=2.5)
    )
    failure = outcome.run.failures[0]
    assert outcome.findings[0].name == "progress/no_scheduling_point"
    assert outcome.findings[0].rank == 1
    lines = failure.traceback.splitlines()
    told = [line for line in lines if line.startswith("rank ")]
    assert [line[:13] for line in told] == [f"rank {r} lane {w}" for r in (0, 1) for w in (0, 1)]
    assert "in loops" in "\n".join(lines[lines.index(told[-1]) :])
