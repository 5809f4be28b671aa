"""Faults at the one door: which occurrence they hit, what each answer does, what is recorded."""

from __future__ import annotations

import pytest
import torch

from harness.errors import EngineError, RankDied
from harness.fabric.execute import Job, execute
from harness.interpose import (
    DeadRank,
    DeferAfter,
    Die,
    Drop,
    Interposer,
    Operation,
    Raise,
    Twice,
)
from harness.plan import Fault


class On(Fault, frozen=True):
    """Answers the nth operation of a kind; the answer stands in ANSWERS."""

    kind: str = "notify"
    answer: str = "drop"

    def matches(self, op):
        return op.kind == self.kind

    def rewrite(self, op):
        return ANSWERS[self.answer](op)


ANSWERS = {
    "drop": lambda op: Drop(),
    "twice": lambda op: Twice(),
    "after wait": lambda op: DeferAfter("wait"),
    "after notify": lambda op: DeferAfter("notify"),
    "die": lambda op: Die(),
    "raise": lambda op: Raise(OSError("injected")),
    "double": lambda op: op.with_args(value=op.args["value"] * 2),
    "same": lambda op: op,
}


def perform(faults, *operations):
    """What (rank, kind, args)s do under `faults`: the calls, what fired, the interposer."""
    calls, fired = [], []
    door = Interposer(faults, lambda index, op: fired.append((index, op.kind)))
    for rank, kind, args in operations:

        def body(kind=kind, rank=rank, **got):
            calls.append((rank, kind, got))
            return len(calls)

        door.perform(Operation(kind, rank, 4, args), body)
    return calls, fired, door


def notify(rank, value):
    return rank, "notify", {"value": value}


def wait(rank):
    return rank, "wait", {}


def values(calls):
    return [got.get("value", kind) for _, kind, got in calls]


def test_only_the_nth_matching_operation_of_the_rank_is_hit():
    calls, fired, door = perform(
        (On(rank=1, nth=1),),
        notify(1, 1),
        notify(0, 2),
        wait(1),
        notify(1, 3),
        notify(1, 4),
    )
    assert values(calls) == [1, 2, "wait", 4]
    assert fired == [(0, "notify")]
    assert door.fired == [1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("drop", [2, "wait", 3]),
        ("twice", [1, 1, 2, "wait", 3]),
        ("double", [2, 2, "wait", 3]),
        ("after wait", [2, "wait", 1, 3]),
        ("after notify", [2, 1, "wait", 3]),
        ("same", [1, 2, "wait", 3]),
    ],
)
def test_what_each_answer_does(answer, expected):
    calls, fired, door = perform(
        (On(answer=answer),),
        notify(0, 1),
        notify(0, 2),
        wait(0),
        notify(0, 3),
    )
    assert values(calls) == expected
    assert door.fired == [len(fired)] == [0 if answer == "same" else 1]


def test_a_deferred_operation_waits_for_its_own_rank_and_comes_at_the_end_at_the_latest():
    calls, _, door = perform((On(answer="after wait"),), notify(0, 1), wait(1), notify(1, 2))
    assert values(calls) == ["wait", 2]
    door.at_end(1)
    assert values(calls) == ["wait", 2]
    door.at_end(0)
    door.at_end(0)
    assert values(calls) == ["wait", 2, 1]


def test_several_faults_compose_in_order():
    faults = (On(answer="double"), On(answer="double"), On(nth=1, answer="drop"))
    calls, fired, door = perform(faults, notify(0, 3), notify(0, 5))
    assert values(calls) == [12]
    assert door.fired == [1, 1, 1]
    assert fired == [(0, "notify"), (1, "notify"), (2, "notify")]


def test_host_operations_concern_every_fault():
    calls, *_ = perform((On(rank=3, kind="alloc", answer="twice"),), (-1, "alloc", {"value": 1}))
    assert values(calls) == [1, 1]


def test_raise_and_die_come_before_the_operation():
    with pytest.raises(OSError, match="injected"):
        perform((On(answer="raise"),), notify(0, 1))
    with pytest.raises(RankDied):
        perform((On(answer="die"),), notify(0, 1))
    with pytest.raises(RankDied):
        DeadRank().perform(Operation("notify", 0, 4, {}), lambda: None)
    assert DeadRank()


@pytest.mark.parametrize(
    "kind", ["load", "remote_load", "window", "buffer", "alloc", "bind", "disk_pread"]
)
@pytest.mark.parametrize("answer", ["drop", "after wait"])
def test_what_returns_a_value_cannot_be_dropped(kind, answer):
    with pytest.raises(EngineError, match=f"a {kind} returns a value"):
        perform((On(kind=kind, answer=answer),), (0, kind, {}))


def program(rank):
    cells = rank.window("c", 1, torch.int32)
    peer = 1 - rank.index
    rank.notify(cells, peer, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(cells, 0, 1).item()


def go(*faults):
    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    return execute(Job(2, host, faults=faults))


def test_in_a_run_the_record_tells_what_fired_and_where():
    plain = go()
    assert (plain.ended, plain.fired, plain.results) == ("returned", [], [[1], [1]])
    run = go(On(rank=1), On(rank=0, nth=7))
    assert run.ended == "blocked"
    assert run.fired == [1, 0]
    assert [entry.lane for entry in run.blocked] == [0]
    (fired,) = [event for event in run.events if event.kind == "fault"]
    assert (fired.owner, fired.lo) == (1, 0)


def test_in_a_run_deferred_and_doubled_operations_keep_the_callers_line():
    run = go(On(rank=0, answer="twice"), On(rank=1, answer="after wait"))
    assert run.ended == "returned"
    assert run.results == [[1], [2]]
    sites = {str(run.site(event)) for event in run.events if event.kind == "notify"}
    assert sites == {"program:notify#0"}


def test_a_fault_that_matches_nothing_leaves_the_run_as_it_is():
    assert go(On(kind="put")).identity() == go().identity()
