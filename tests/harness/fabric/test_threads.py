"""Lanes on threads that take turns: the records are those on greenlets, and every end is the same."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import signal
import threading

import pytest
import torch

from harness import registry
from harness.ambient import generator
from harness.errors import NoSchedulingPoint, ThreadStarted
from harness.fabric import carrier, threads
from harness.interpose import Die
from harness.plan import Fault, Hold, Plan, Preempt
from harness.run import run


class DieAt(Fault, frozen=True):
    """Kills the rank before its nth store."""

    def matches(self, op):
        return op.kind == "store"

    def rewrite(self, op):
        return Die()


def ring(rank):
    window = rank.window("w", 4, torch.float32)
    cells = rank.window("c", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(window, right, torch.full((4,), float(rank.index)))
    rank.fence()
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(window, 0, 1).item()


def blocked(rank):
    rank.wait(rank.window("c", 1, torch.int32), 0, 1)


def raises(rank):
    rank.sync()
    raise ValueError("mine")


def swallows(rank):
    with contextlib.suppress(BaseException):
        blocked(rank)


def swallows_for_ever(rank):
    while True:
        with contextlib.suppress(BaseException):
            blocked(rank)


def draws(rank):
    rank.sync()
    first = torch.rand(2).tolist()
    rank.sync()
    return first, torch.rand(1).item()


def record(found):
    return (
        found.identity(), found.ended, found.results, found.points, found.deviations_applied,
        found.peers_lost, [str(one.error) for one in found.failures],
        [(one.lane, one.kind) for one in found.blocked],
    )


@pytest.mark.parametrize("program", [ring, blocked, raises, swallows, draws])
@pytest.mark.parametrize("schedule", [(), (Hold(0), Hold(3, 5)), (Preempt(2, 1), Preempt(5, 0))])
def test_a_run_on_threads_is_the_run_on_greenlets(go, program, schedule):
    assert record(go(program, 3, *schedule, threads=True)) == record(go(program, 3, *schedule))


@pytest.mark.parametrize("name", ["collectives.allreduce_mesh", "collectives.allreduce_ring"])
def test_a_scenario_has_the_same_outcomes_on_threads(name):
    scenario = registry.find(name)
    threaded = dataclasses.replace(scenario, threads=True)
    draw = generator("threads", name)
    for _ in range(20):
        schedule = tuple(Hold(draw.randrange(30), draw.randrange(9)) for _ in range(3))
        plan = Plan(
            scenario=name, params=scenario.params(), ranks=draw.randrange(2, 5), schedule=schedule
        )
        here, there = run(plan, scenario=scenario), run(plan, scenario=threaded)
        assert there.run.identity() == here.run.identity()
        assert there.findings == here.findings


def test_a_gradient_mode_is_the_lanes_own(go):
    def program(rank):
        with torch.set_grad_enabled(rank.index == 0):
            rank.sync()
            mine = torch.is_grad_enabled()
            x = torch.ones(2, requires_grad=True)
            y = (x * 3).sum()
            rank.sync()
            if mine:
                y.backward()
                return x.grad.tolist()
            return y.requires_grad

    assert go(program, 2, threads=True).results == [[[3.0, 3.0]], [False]]


def test_two_hundred_runs_use_the_same_threads(go):
    go(ring, 4, threads=True)
    before = threading.active_count()
    for _ in range(200):
        for program in (ring, blocked, raises, swallows):
            go(program, 4, threads=True)
    assert threading.active_count() == before
    gc.collect()
    assert all(one.job is None for one in threads._pool)


def test_a_thread_of_the_programs_own_is_refused(go):
    def program(rank):
        threading.Thread(target=print).start()

    (first, _) = go(program, 2, threads=True).failures
    assert type(first.error) is ThreadStarted


def test_a_dead_rank_leaves_the_others_a_lost_peer(go):
    def program(rank):
        rank.store(rank.buffer(1, torch.float32), 1.0)
        rank.sync()

    found = go(program, 3, faults=(DieAt(rank=1, nth=0),), threads=True)
    assert found.dead == [1]
    assert sorted(found.peers_lost) == [0, 2]
    assert record(found) == record(go(program, 3, faults=(DieAt(rank=1, nth=0),)))


def test_a_program_that_swallows_every_end_is_left_behind(go):
    found = go(swallows_for_ever, 2, threads=True)
    assert found.ended == "blocked"
    assert go(ring, 2, threads=True).results == [[1.0], [0.0]]


def test_an_endless_loop_is_struck_in_its_own_thread(go, clock):
    def spins():
        while True:
            clock.seconds += 0.001

    def program(rank):
        rank.sync()
        if rank.index == 1:
            spins()
        rank.sync()

    (failure,) = go(program, 3, threads=True).failures
    assert (failure.lane, type(failure.error)) == (1, NoSchedulingPoint)
    assert failure.code is spins.__code__
    assert go(ring, 2, threads=True).results == [[1.0], [0.0]]


def test_a_lane_in_native_code_is_left_behind_with_its_stack(go, monkeypatch):
    monkeypatch.setattr(carrier, "LIMIT_SECONDS", 0.5)
    done = threading.Event()
    lock = threading.Lock()
    lock.acquire()

    def native(rank):
        rank.sync()
        if rank.index == 1:
            lock.acquire()  # nobody ever lets it go
            done.set()
        rank.sync()

    (failure,) = go(native, 2, threads=True).failures
    lock.release()
    done.wait()
    assert str(failure.error).endswith("and it does not come back from native code")
    assert "in native" in failure.traceback
    assert failure.code is native.__code__
    monkeypatch.setattr(carrier, "LIMIT_SECONDS", 10.0)
    assert go(ring, 2, threads=True).results == [[1.0], [0.0]]


def test_ctrl_c_ends_the_run_in_the_main_thread(go):
    before = threading.active_count()

    def program(rank):
        rank.sync()
        if rank.index == 0:
            signal.raise_signal(signal.SIGINT)
            while True:
                sum(range(100))
        rank.sync()

    with pytest.raises(KeyboardInterrupt):
        go(program, 2, threads=True)
    assert go(ring, 2, threads=True).results == [[1.0], [0.0]]
    assert threading.active_count() <= max(before, 4) + 2
