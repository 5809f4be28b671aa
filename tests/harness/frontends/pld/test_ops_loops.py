"""Loops, and values that go from round to round."""

from __future__ import annotations

import pytest

from harness.errors import PldRuleError, WrongArgument
from harness.frontends.pypto.annotations import bound
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.operate import TASK, Task
from harness.frontends.pypto.scalars import DeviceInt

pl = modules()["pypto.language"]


@pytest.fixture(autouse=True)
def on_a_device():
    token = TASK.set(Task(None, 0))
    yield
    TASK.reset(token)


def test_induction_variables_are_a_devices():
    rounds = list(pl.range(-3, 4, 3))
    assert rounds == [-3, 0, 3]
    assert {type(one) for one in rounds} == {DeviceInt}
    assert rounds[0] % 2 == -1
    assert list(pl.parallel(2)) == list(pl.unroll(2)) == list(pl.pipeline(2, stage=2)) == [0, 1]
    with bound({"N": 2}):
        assert list(pl.range(pl.dynamic("N") * 2)) == [0, 1, 2, 3]


def test_carried_values():
    seen = []
    for i, (total, last) in pl.range(4, init_values=(0, None)):
        seen.append(last)
        found = pl.yield_(total + i, i)
    assert found == (6, 3)
    assert seen == [None, 0, 1, 2]


def test_loops_in_loops():
    for i, (outer,) in pl.range(3, init_values=(0,)):
        for j, (inner,) in pl.range(i + 1, init_values=(outer,)):
            kept = pl.yield_(inner + j)
        total = pl.yield_(kept)
    assert total == 0 + 1 + 3


def test_loops_of_two_tasks_that_take_turns():
    def rounds(start):
        for i, (total,) in pl.range(3, init_values=(start,)):
            yield
            found.append(pl.yield_(total + i))

    found = []
    first, second = rounds(0), rounds(100)
    other = Task(None, 1)
    for _ in range(4):
        next(first, None)
        token = TASK.set(other)
        next(second, None)
        TASK.reset(token)
    assert found == [0, 100, 1, 101, 3, 103]


def test_a_loop_that_is_left_leaves_nothing_behind():
    for i, (_,) in pl.range(3, init_values=(0,)):
        if i == 1:
            break
        pl.yield_(1)
    with pytest.raises(PldRuleError, match="outside a loop"):
        pl.yield_(1)


def forgets():
    for _ in pl.range(2, init_values=(0,)):
        pass


def carries_too_few():
    for _ in pl.range(2, init_values=(0, 1)):
        pl.yield_(0)


def unrolls_a_scalar():
    pl.unroll(DeviceInt(3))


def pipelines_without_stages():
    pl.pipeline(3)


def asserts():
    pl.static_assert(False, "two ranks")


def loops_for_ever():
    pl.while_()


@pytest.mark.parametrize(("step", "rule"), [
    (forgets, "missing_yield"), (carries_too_few, "missing_yield"), (unrolls_a_scalar, "unroll_bound"),
    (pipelines_without_stages, "pipeline_stage"), (asserts, "static_assert"),
    (loops_for_ever, "while_values"),
])
def test_rules(step, rule):
    with pytest.raises(PldRuleError) as caught:
        step()
    assert caught.value.rule == rule


def test_numbers_that_make_no_loop():
    with pytest.raises(WrongArgument, match="step 0"):
        pl.range(0, 3, 0)
    with pytest.raises(WrongArgument, match="0 numbers"):
        pl.range()
    with pytest.raises(WrongArgument, match="a tuple"):
        pl.range(3, init_values=1)
