"""Programs that never come to an end, and polls that do."""

from __future__ import annotations

import torch

from harness import Plan, scenario
from harness.errors import NoSchedulingPoint
from harness.run import explore


def made(program):
    return scenario(reference=lambda size, **_: [None] * size, ranks=(1, 8))(program)


def only(outcome, name: str):
    assert [f.name for f in outcome.findings] == [name]
    return outcome.findings[0]


@made
def polls(rank) -> None:
    flag = rank.window("flag", 2, torch.int32)
    if rank.index == 1:
        while not int(rank.load(flag, 1, 1)):
            pass
    elif rank.size > 2 and rank.index == 2:
        rank.notify(flag, 1, 1, 1)


def test_livelock_names_the_polled_cell(judge):
    finding = only(judge(polls, 2), "progress/livelock")
    assert finding.rank == 1
    assert "rank 1 polls 'flag'[1] on rank 1 = [0] with load at" in finding.message
    assert [str(site) for site in finding.sites] == ["polls:load#0"]
    assert judge(polls, 3).findings == ()


@made
def polls_after_raise(rank) -> None:
    flag = rank.window("flag", 1, torch.int32)
    if rank.index == 0:
        raise ValueError("no")
    while not int(rank.load(flag, 0, 1)):
        pass


def test_a_poll_after_an_exception_is_its_consequence(judge):
    finding = only(judge(polls_after_raise, 2), "exceptions/value_error")
    assert finding.consequences == ("after it: rank 1 polls for ever",)


@made
def endless(rank) -> None:
    win = rank.window("w", 1, torch.int32)
    while True:
        rank.store(win, 1)


@made
def no_point(rank) -> None:
    if rank.index == 1:
        raise NoSchedulingPoint


def test_overrun_says_where_ranks_were(judge):
    plan = Plan(scenario="endless", params=endless.params(), ranks=2)

    class First:
        def choose(self, simulation, lanes, ops):
            return (lanes or ops)[0]

    finding = only(explore(plan, endless, First(), events_max=200), "progress/overrun")
    assert "limit of 200 events" in finding.message
    assert "rank 0 last did store at" in finding.message


def test_no_scheduling_point_is_this_checkers(judge):
    finding = only(judge(no_point, 2), "progress/no_scheduling_point")
    assert finding.rank == 1
    assert "reached no scheduling point at" in finding.message
    assert judge(no_point, 1).findings == ()
