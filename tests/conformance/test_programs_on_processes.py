"""Programs that no rung has: polls, timeouts, sleeps, tensors in flight, lost peers, nested groups.

Conducted, each makes the same record on both fabrics.
"""

import random
import time

import pytest
import torch

from faults.environment import Crash
from harness import Hold, PeerLost, Plan, Preempt, WaitCmp, run, scenario, values

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
