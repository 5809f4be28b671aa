"""What the record of a pld program shows of its cells, and the rules that its calls broke."""

from __future__ import annotations

import pytest
import torch

from harness import NotifyOp, WaitCmp
from harness.checkers.exceptions import Exceptions
from harness.checkers.pld_rules import PldRules
from harness.diagnosis.table import likely
from harness.errors import PldRuleError
from harness.fabric.execute import Job, execute
from harness.schedule import RandomWalk

SEEDS = 20


def ran(program, ranks=3, chooser=None):
    def host(world):
        cells = world.alloc([8], torch.int32, name="cells")
        for index in range(world.size):
            world.dispatch(program, cells, device=index)

    return execute(Job(ranks, host, chooser=chooser))


def kinds(program, ranks=3):
    return [found.name for found in PldRules().check(ran(program, ranks))]


def silent(program, ranks=3):
    assert kinds(program, ranks) == []
    for seed in range(SEEDS):
        run = ran(program, ranks, RandomWalk(seed))
        assert (run.ended, list(PldRules().check(run))) == ("returned", [])


def shared_cell_set(rank, cells):
    if rank.index:
        rank.notify(cells, 0, 0, 1, op=NotifyOp.Set)
    else:
        rank.wait(cells, 0, 1)


def cell_for_each(rank, cells):
    if rank.index:
        rank.notify(cells, 0, rank.index, 1, op=NotifyOp.Set)
    else:
        for peer in range(1, rank.size):
            rank.wait(cells, peer, 1)


def shared_cell_add(rank, cells):
    if rank.index:
        rank.notify(cells, 0, 0, 1)
    else:
        rank.wait(cells, 0, rank.size - 1)


def set_in_turns(rank, cells):
    """Rank 0 sees each rank's Set before it lets the next one come."""
    if rank.index:
        rank.wait(cells, 1, rank.index)
        rank.notify(cells, 0, 0, rank.index, op=NotifyOp.Set)
    else:
        for peer in range(1, rank.size):
            rank.notify(cells, peer, 1, peer)
            rank.wait(cells, 0, peer)


def test_sets_of_a_shared_cell():
    assert kinds(shared_cell_set) == ["pld/set_on_shared_cell"]
    assert kinds(shared_cell_set, ranks=2) == []  # one writer


@pytest.mark.parametrize("program", [cell_for_each, shared_cell_add, set_in_turns])
def test_its_twins(program):
    silent(program)


def two_adds_eq(rank, cells):
    if rank.index == 0:
        rank.wait(cells, 0, 1, cmp=WaitCmp.Eq)
        rank.wait(cells, 0, 2, cmp=WaitCmp.Ge)
    elif rank.index == 1:
        rank.notify(cells, 0, 0, 1)
        rank.notify(cells, 2, 1, 1)
        rank.notify(cells, 0, 0, 1)


def answered_eq(rank, cells):
    if rank.index == 0:
        for epoch in (1, 2):
            rank.wait(cells, 0, epoch, cmp=WaitCmp.Eq)
            rank.notify(cells, 1, 0, 1)
    elif rank.index == 1:
        for epoch in (1, 2):
            rank.notify(cells, 0, 0, 1)
            rank.wait(cells, 0, epoch)


def test_eq_that_an_early_add_can_pass():
    seen = set()
    for seed in range(SEEDS):
        seen |= {found.name for found in PldRules().check(ran(two_adds_eq, 3, RandomWalk(seed)))}
    assert seen == {"pld/eq_can_overshoot"}


def test_eq_that_is_answered():
    silent(answered_eq)


def zero_tag(rank, cells):
    peer = 1 - rank.index
    rank.notify(cells, peer, 0, rank.index, op=NotifyOp.Set)
    rank.wait(cells, 0, 1)


def tag_from_one(rank, cells):
    peer = 1 - rank.index
    rank.notify(cells, peer, 0, rank.index + 1, op=NotifyOp.Set)
    rank.wait(cells, 0, 1)


def test_a_tag_of_zero():
    assert kinds(zero_tag, ranks=2) == ["pld/tag_of_zero"]
    silent(tag_from_one, ranks=2)


def test_a_macro_in_the_environment():
    run = ran(shared_cell_add)
    (found,) = PldRules([("ring.py:7", "SIMPLER_DFX")]).check(run)
    assert found.name == "pld/macro_as_environment"
    assert found.message.startswith("ring.py:7 sets SIMPLER_DFX")
    assert list(PldRules().check(run)) == []


def test_a_rule_that_a_call_broke_is_the_finding():
    def program(rank, cells):
        if rank.index == 1:
            raise PldRuleError("offset_rank", "notify with 1 offset; 'sig' has 2 dimensions")
        rank.wait(cells, 0, 1)

    run = ran(program, ranks=2)
    (found,) = PldRules().check(run)
    assert (found.name, found.rank) == ("pld/offset_rank", 1)
    assert "notify with 1 offset; 'sig' has 2 dimensions" in found.message
    assert found.remedy == likely("pld/offset_rank")[1] != ""
    assert list(Exceptions().check(run)) == []


def test_another_error_is_no_rule():
    def program(rank, cells):
        raise ValueError("mine")

    run = ran(program, ranks=1)
    assert list(PldRules().check(run)) == []
    assert [found.name for found in Exceptions().check(run)] == ["exceptions/value_error"]
