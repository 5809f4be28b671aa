"""The checker against every schedule of small random programs: sound, and no false alarms."""

from __future__ import annotations

import random

import pytest

from harness.races.conflicts import Conflicts
from harness.schedule.chooser import SlowRank
from harness.schedule.random_walk import RandomWalk

SCHEDULES_MAX = 150  # all of them where there are no more; beyond, as many random ones
PROGRAMS = 40
GROUPS = 10  # of which one by day


def name_of(run, access):
    """The same access in another run: lane, operation by its place, and what it does."""
    issued = [e.number for e in run.events if e.owner == access.lane and e.number >= 0]
    if access.op >= 0:
        return access.lane, "op", issued.index(access.op), run.events[access.at].kind
    own = [i for i, e in enumerate(run.events) if e.owner == access.lane]
    return access.lane, "event", own.index(access.at), ""


def places(run):
    """Where in the record each access is."""
    found, issued, own, names = {}, {}, {}, {}
    for index, event in enumerate(run.events):
        if event.owner >= run.ranks:
            lane, place = names[event.number]
            found[lane, "op", place, event.kind] = index
            continue
        lane = event.owner
        found[lane, "event", own.get(lane, 0), ""] = index
        own[lane] = own.get(lane, 0) + 1
        if event.number >= 0:
            names[event.number] = lane, issued.get(lane, 0)
            issued[lane] = issued.get(lane, 0) + 1
    return found


@pytest.mark.parametrize("sets", [False, True], ids=["adds", "sets"])
@pytest.mark.parametrize("group", [
    pytest.param(group, marks=pytest.mark.nightly if group else ()) for group in range(GROUPS)
])
def test_one_run_tells_what_all_schedules_show(small_worlds, group, sets):
    silent = racy = 0
    for number in range(PROGRAMS):
        draw = random.Random(f"{group} {number} {sets}")
        ranks = draw.choice((2, 2, 3))
        lanes = small_worlds.drawn(draw, ranks, 4 if ranks == 2 else 3, sets)
        run, _ = small_worlds.go(lanes)
        if run.ended != "returned":
            continue
        pairs = {(name_of(run, c.first), name_of(run, c.second)) for c in Conflicts(run)}
        runs = list(small_worlds.all_schedules(lanes, SCHEDULES_MAX))
        if len(runs) == SCHEDULES_MAX:
            runs += [small_worlds.go(lanes, RandomWalk(seed)) for seed in range(SCHEDULES_MAX)]
            runs += [small_worlds.go(lanes, SlowRank(rank)) for rank in range(ranks)]
        read = {}
        for _, values in runs:
            for where, value in values.items():
                read.setdefault(where, set()).add(value)
        if not pairs:
            silent += 1
            assert all(len(values) == 1 for values in read.values()), lanes
            continue
        racy += 1
        orders = {pair: set() for pair in pairs}
        for other, _ in runs:
            found = places(other)
            for first, second in pairs:
                if first in found and second in found:
                    orders[first, second].add(found[first] < found[second])
        assert all(seen == {True, False} for seen in orders.values()), (lanes, orders)
    assert silent >= 3
    assert racy >= 3
