"""Greenlets between runs, the watchdog, other threads, and runs inside runs."""

from __future__ import annotations

import contextlib
import gc
import importlib
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import greenlet
import pytest
import torch

from harness.ambient import nap
from harness.errors import NoSchedulingPoint, UsageError
from harness.fabric import carrier
from harness.fabric.execute import Job, execute


def blocked(rank):
    rank.wait(rank.window("c", 1, torch.int32), 0, 1)


def returns(rank):
    rank.sync()
    return rank.index


def raises(rank):
    rank.sync()
    raise ValueError("mine")


def swallows(rank):
    with contextlib.suppress(BaseException):
        blocked(rank)


def live_greenlets():
    gc.collect()
    return sum(type(found) is greenlet.greenlet for found in gc.get_objects())


@pytest.mark.parametrize("program", [blocked, returns, raises, swallows])
def test_two_thousand_runs_leave_no_greenlets_behind(go, program):
    go(program, 4)
    before = live_greenlets()
    for _ in range(2_000):
        go(program, 4)
    assert live_greenlets() <= before


def test_a_pooled_carrier_keeps_nothing_of_its_last_run(go):
    go(returns, 4)
    assert all(held.job is None for held in carrier._pool.carriers)


def test_a_run_is_freed_with_its_record(go):
    class Big:
        pass

    def program(rank):
        return Big()

    run = go(program, 3)
    assert len(run.results) == 3
    del run
    gc.collect()
    assert not [found for found in gc.get_objects() if type(found) is Big]


def test_an_endless_loop_ends_by_the_watchdog_naming_rank_and_line(go, clock):
    def spins():
        while True:
            clock.seconds += 0.001

    def program(rank):
        rank.sync()
        if rank.index == 1:
            spins()
        rank.sync()

    run = go(program, 3)
    (failure,) = run.failures
    assert (failure.lane, type(failure.error)) == (1, NoSchedulingPoint)
    assert str(failure.error) == "rank 1: no scheduling point for 10 s"
    assert "in spins" in failure.traceback
    assert failure.code is spins.__code__
    assert [entry.lane for entry in run.blocked] == [0, 2]
    assert go(returns).results == [[0], [1]]


def test_the_watchdog_wins_against_except_exception(go, clock):
    def program(rank):
        while True:
            try:
                while True:
                    clock.seconds += 0.001
            except Exception:
                continue

    run = go(program, 1)
    assert [(failure.lane, type(failure.error)) for failure in run.failures] == [
        (0, NoSchedulingPoint)
    ]
    assert "rank 0" in str(run.failures[0].error)


def test_each_rank_has_the_whole_limit_before_its_first_operation(go, clock):
    """Preparing 64 ranks may take longer than one of them may."""

    def program(rank):
        clock.seconds += 6
        nap(0.3)  # the watchdog looks four times a second

    assert go(program, 4).failures == []
    assert clock.seconds == 24


@pytest.fixture
def looked(monkeypatch):
    """Waits until the watchdog has looked once more; `waited`: what it sees of the threads."""

    def until():
        before = until.times
        while until.times == before:
            nap(0.01)

    def waits():
        until.times += 1
        return {1: until.waited}

    until.times, until.waited = 0, 0.0
    monkeypatch.setattr(carrier, "processor_waits", waits)
    return until


@pytest.mark.parametrize(("waited", "failures"), [(0.0, 1), (5.0, 0), (1e9, 0)])
def test_the_time_that_the_machine_withholds_does_not_count(go, clock, looked, waited, failures):
    def program(rank):
        looked()  # so that it has seen this very place
        clock.seconds += 12
        looked.waited = waited
        looked()
        looked()

    assert len(go(program, 1).failures) == failures


@pytest.mark.parametrize(("seconds", "failures"), [(99, 0), (101, 1)])
def test_an_import_is_not_cut_off(go, clock, looked, monkeypatch, tmp_path, seconds, failures):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"takes_{seconds}"
    (tmp_path / f"{name}.py").write_text("import sys\nsys.modules['takes'].body()\n")

    def body():
        looked()
        clock.seconds += seconds
        looked()
        looked()

    monkeypatch.setitem(sys.modules, "takes", SimpleNamespace(body=body))
    assert len(go(lambda rank: importlib.import_module(name) and None, 1).failures) == failures


def test_runs_in_other_threads(go):
    """Thread identifiers are used again by the operating system; greenlets are not."""
    expected = go(blocked, 4).identity()
    seen = []
    for _ in range(5):
        thread = threading.Thread(target=lambda: seen.append(go(blocked, 4).identity()))
        thread.start()
        thread.join()
    assert seen == [expected] * 5
    assert go(blocked, 4).identity() == expected


def test_threads_take_turns(go):
    expected = go(returns, 4).identity()
    seen = []

    def several():
        seen.extend(go(returns, 4).identity() for _ in range(20))

    threads = [threading.Thread(target=several) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 80


@pytest.mark.parametrize("where", ["rank", "host"])
def test_a_run_inside_a_run_is_refused(go, where):
    def inner():
        go(returns)

    def program(rank):
        rank.sync()
        if rank.index == 0 and where == "rank":
            inner()

    def host(world):
        if where == "host":
            inner()
        for index in range(world.size):
            world.dispatch(program, device=index)

    run = execute(Job(2, host))
    (failure,) = run.failures
    assert (failure.lane, type(failure.error)) == (0 if where == "rank" else -1, UsageError)
    assert "a run was started inside a run" in str(failure.error)
    assert go(returns).results == [[0], [1]], "the next one works"


def test_an_engine_that_breaks_leaves_no_broken_carrier(go, monkeypatch):
    class Broken:
        def choose(self, simulation, lanes, ops):
            raise ZeroDivisionError("an explorer's bug")

    with contextlib.suppress(ZeroDivisionError):
        go(returns, 3, chooser=Broken())
    assert go(returns, 3).results == [[0], [1], [2]]


TORCH_RAISES = """
from operator import call

import torch

from harness.fabric.execute import Job, execute


def program(rank):
    rank.sync()
    return torch.zeros(3).add_(torch.zeros(4))


def host(world):
    for index in range(world.size):
        world.dispatch(program, device=index)


def at_depth(calls, ranks):
    return call(at_depth, calls - 1, ranks) if calls else execute(Job(ranks=ranks, host=host))


for turn in range(200):
    run = at_depth(turn * 37 % 60, 1 + turn % 8)
    assert "must match the size" in str(run.failures[0].error)
print("survived")
"""


def test_torch_may_raise_on_a_carrier_that_was_made_at_another_depth_of_the_stack():
    """Its backtrace of the native stack must not run past the carrier's first frame."""
    told = subprocess.run(
        [sys.executable, "-c", TORCH_RAISES],
        cwd=Path(__file__).parents[3], capture_output=True, text=True,
    )
    assert (told.returncode, told.stdout) == (0, "survived\n"), told.stderr
