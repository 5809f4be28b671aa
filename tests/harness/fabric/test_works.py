"""Works: asynchronous operations that complete by an event of their own, when it is chosen."""

from __future__ import annotations

import pytest

from harness.errors import WaitExpired
from harness.plan import Hold


class Meeting:
    """An asynchronous barrier that hands each rank the sum of what all gave."""

    def __init__(self, size):
        self.size = size
        self.given = []
        self.works = []

    def join(self, rank, value):
        rank._sim.point(rank._lane)
        rank._plain("meet")
        box = []

        def complete():
            box.append(sum(self.given))
            return str(box[0]).encode()

        work = rank._sim.work(rank._lane, "meet", complete, None, -1)
        self.given.append(value)
        self.works.append(work)
        if len(self.given) == self.size:
            for one in self.works:
                rank._sim.work_may_complete(one)
        return work, box


def program_of(meeting, timeout=None):
    def program(rank):
        work, box = meeting.join(rank, rank.index + 1)
        early = list(box)
        rank._sim.await_work(rank._lane, work, timeout)
        return early, box

    return program


@pytest.mark.parametrize("threads", [False, True])
def test_each_work_completes_once_all_have_come(go, threads):
    run = go(program_of(Meeting(3)), 3, threads=threads)
    assert run.results == [[([], [6])]] * 3
    assert [event.kind for event in run.events].count("complete") == 3
    assert run.operations == 3


@pytest.mark.parametrize("threads", [False, True])
def test_a_hold_keeps_one_ranks_completion_back(go, threads):
    default = go(program_of(Meeting(3)), 3, threads=threads)
    held = go(program_of(Meeting(3)), 3, Hold(0), threads=threads)
    assert held.deviations_applied == 1
    assert held.results == default.results
    last = [event.owner for event in held.events if event.kind == "complete"][-1]
    assert last == 3 + 0
    assert held.identity() != default.identity()


def test_a_member_that_never_comes_blocks_the_others(go):
    meeting = Meeting(3)

    def program(rank):
        if rank.index != 2:
            work, _ = meeting.join(rank, 1)
            rank._sim.await_work(rank._lane, work)

    run = go(program, 3)
    assert run.ended == "blocked"
    assert [(one.lane, one.kind) for one in run.blocked] == [(0, "work"), (1, "work")]


def test_a_time_limit_in_virtual_seconds(go):
    meeting = Meeting(3)

    def program(rank):
        if rank.index == 2:
            return None
        work, _ = meeting.join(rank, 1)
        try:
            rank._sim.await_work(rank._lane, work, 1800.0)
        except WaitExpired:
            return rank._sim.clock()
        return "came"

    first, second, third = go(program, 3).results
    assert 1800.0 <= first[0] < 1801.0
    assert 1800.0 <= second[0] < 1801.0
    assert third == [None]
