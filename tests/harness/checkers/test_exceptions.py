"""What raised first is the finding; the rest follows from it."""

from __future__ import annotations

import contextlib

import pytest
import torch

from harness import Fault, PeerLost, Scenario, scenario
from harness.checkers.failures import snake_case
from harness.interpose import Die


def made(program):
    return scenario(reference=lambda size, **_: [None] * size, ranks=(1, 8))(program)


def only(outcome, name: str):
    assert [f.name for f in outcome.findings] == [name]
    return outcome.findings[0]


@made
def out_of_bounds(rank) -> None:
    win, cell = rank.window("w", 4, torch.float32), rank.window("sig", 1, torch.int32)
    if rank.index == 1:
        rank.put(win, 0, torch.ones(3), 2)
    if rank.index == 2:
        rank.wait(cell, 0, 1)


def test_the_raising_rank_its_line_and_its_traceback(judge):
    finding = only(judge(out_of_bounds, 3), "exceptions/out_of_bounds")
    assert finding.rank == 1
    assert "rank 1 raised at tests/harness/checkers/test_exceptions.py:" in finding.message
    assert "put of 3 elements at 2" in finding.message
    assert "rank.put(win, 0, torch.ones(3), 2)" in finding.traceback
    assert [str(site) for site in finding.sites] == ["out_of_bounds:put#0"]
    assert len(finding.consequences) == 1
    assert finding.consequences[0].startswith("after it: rank 2 is blocked in wait at")
    assert judge(out_of_bounds, 1).findings == ()


@made
def raises_in_turn(rank) -> None:
    if rank.index == 2:
        raise ValueError("first")
    rank.sync() if rank.size == 1 else rank.window("w", 1, torch.int32)


@made
def all_raise(rank) -> None:
    torch.ones(2) + torch.ones(3)


def test_later_raisers_are_marked(judge):
    only(judge(raises_in_turn, 3), "exceptions/value_error")
    finding = only(judge(all_raise, 3), "exceptions/runtime_error")
    assert finding.rank == 0
    assert [line.split(":")[0] for line in finding.consequences] == ["the same", "the same"]
    assert [str(site) for site in finding.sites] == ["all_raise:raise#0"]


def test_the_host_program_is_rank_minus_one(judge):
    def host(world, _):
        world.dispatch(print, 1, device=7)

    made = Scenario(name="t", host=host, reference=lambda _, size: {"result": [None] * size})
    finding = only(judge(made, 2), "exceptions/dispatch_error")
    assert finding.rank == -1
    assert finding.message.startswith("host program raised at")
    assert [str(site).split(":")[1] for site in finding.sites] == ["dispatch#0"]


class Crash(Fault, frozen=True):
    def matches(self, op) -> bool:
        return op.kind == "sync"

    def rewrite(self, op):
        return Die()


@made
def ends_cleanly(rank) -> None:
    rank.sync()


class Lost(RuntimeError):
    pass


@made
def ends_with_its_own_error(rank) -> None:
    try:
        rank.sync()
    except PeerLost as lost:
        raise Lost("peer") from lost


@made
def ends_badly(rank) -> None:
    with contextlib.suppress(PeerLost):
        rank.sync()
    raise ValueError("unrelated")


def test_survivors_of_a_crash_are_no_finding(judge):
    fault = Crash(rank=1)
    for given in (ends_cleanly, ends_with_its_own_error):
        outcome = judge(given, 3, faults=(fault,))
        assert outcome.run.dead == [1]
        assert outcome.findings == ()
    only(judge(ends_badly, 3, faults=(fault,)), "exceptions/value_error")


@pytest.mark.parametrize(("name", "kind"), [
    ("OutOfBounds", "out_of_bounds"), ("ValueError", "value_error"), ("OSError", "os_error"),
    ("NotYet", "not_yet"), ("KeyError", "key_error"),
])
def test_kinds_are_snake_case(name, kind):
    assert snake_case(name) == kind
