"""Virtual time, generators by rank, no threads; and everything as it was afterwards."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest
import torch

from harness import ambient
from harness.errors import ThreadStarted
from harness.fabric.execute import Job, execute
from harness.plan import Hold, Preempt


def go(program, ranks=2, *schedule):
    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    return execute(Job(ranks, host, schedule=schedule))


CLOCKS = [
    "sleep",
    "time",
    "monotonic",
    "perf_counter",
    "time_ns",
    "monotonic_ns",
    "perf_counter_ns",
]


def test_sleep_costs_virtual_time_only():
    def program(rank):
        before = time.monotonic(), time.time_ns()
        time.sleep(3_600 * (rank.index + 1))
        return time.monotonic() - before[0], time.time_ns() - before[1]

    started = ambient.now()
    run = go(program, 2)
    assert ambient.now() - started < 60
    for index, ((seconds, nanoseconds),) in enumerate(run.results):
        assert seconds == pytest.approx(3_600 * (index + 1), abs=1)
        assert nanoseconds == pytest.approx(seconds * 1e9, rel=1e-3)


def test_sleepers_wake_in_the_order_of_their_times():
    woken = []

    def program(rank):
        time.sleep(10 - rank.index)
        woken.append(rank.index)

    assert go(program, 3).ended == "returned"
    assert woken == [2, 1, 0]


def test_sleeping_shorter_than_nothing_is_an_error_of_the_program():
    def program(rank):
        time.sleep(-1)

    assert [type(failure.error) for failure in go(program).failures] == [ValueError, ValueError]


@pytest.mark.parametrize("ending", ["returned", "blocked", "raised", "interrupted"])
def test_the_clocks_are_restored(ending):
    real = {name: getattr(time, name) for name in CLOCKS}
    start = threading.Thread.start

    def program(rank):
        assert time.monotonic is not real["monotonic"]
        if ending == "raised":
            raise ValueError
        if ending == "interrupted":
            raise KeyboardInterrupt
        if ending == "blocked" and rank.index:
            rank.sync()

    if ending == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            go(program)
    else:
        assert go(program).failures == [] or ending == "raised"
    assert {name: getattr(time, name) for name in CLOCKS} == real
    assert threading.Thread.start is start


def test_a_host_program_has_virtual_time_too():
    seen = []

    def host(world):
        time.sleep(1_000_000)
        seen.append(time.time())
        world.dispatch(lambda rank: None, device=0)

    execute(Job(1, host))
    assert seen == [0.0]


def test_other_threads_keep_real_time_and_may_start_threads():
    inside, done = threading.Event(), threading.Event()
    told = []

    def other():
        inside.wait(30)
        time.sleep(0)
        told.append(time.time())
        helper = threading.Thread(target=lambda: told.append("started"))
        helper.start()
        helper.join()
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def program(rank):
        rank.sync()
        if rank.index == 0:
            inside.set()
            done.wait(30)

    run = go(program)
    thread.join()
    assert run.failures == []
    assert told[0] > 1_000_000_000
    assert told[1] == "started"


def test_starting_a_thread_is_refused_with_its_name():
    def program(rank):
        if rank.index == 1:
            threading.Thread(target=print, name="helper").start()

    (failure,) = go(program).failures
    assert (failure.lane, type(failure.error)) == (1, ThreadStarted)
    assert "'helper'" in str(failure.error)


def by_random(rank):
    return random.random(), random.gauss(0, 1)


def by_numpy(rank):
    return float(numpy.random.rand()), float(numpy.random.randn())


def by_torch(rank):
    return torch.rand(1).item(), torch.randn(1).item()


@pytest.fixture(params=[by_random, by_numpy, by_torch], ids=lambda draw: draw.__name__)
def draw(request):
    return request.param


def drawing(draw):
    def program(rank):
        drawn = [draw(rank)]
        for _ in range(2):
            rank.put(rank.window("w", 1, torch.float32), 0, torch.ones(1))
            drawn.append(draw(rank))
        rank.sync()
        return drawn

    return program


def test_each_rank_draws_numbers_of_its_own_whatever_the_schedule(draw):
    program = drawing(draw)
    expected = go(program, 3).results
    assert len({repr(result) for result in expected}) == 3
    for schedule in ((), (Hold(0),), *((Preempt(at, to),) for at in range(6) for to in range(2))):
        draw(None)
        assert go(program, 3, *schedule).results == expected
    assert go(program, 2).results == expected[:2], "nor does the world size matter"


def generators():
    return random.getstate(), repr(numpy.random.get_state()), torch.get_rng_state().tolist()


def test_the_generators_of_the_caller_are_restored(draw):
    random.gauss(0, 1)
    before = generators()
    go(drawing(draw), 3)
    assert generators() == before
    go(lambda rank: rank.sync(), 3)
    assert generators() == before


def test_a_seeding_program_does_not_seed_the_caller():
    def program(rank):
        random.seed(5)
        numpy.random.seed(5)
        torch.manual_seed(5)
        return random.random()

    before = generators()
    assert go(program).results == [[random.Random(5).random()]] * 2
    assert generators() == before


def test_the_host_program_draws_the_same_numbers_every_time():
    drawn = []

    def host(world):
        drawn.append(torch.rand(1).item())
        for index in range(world.size):
            world.dispatch(lambda rank: None, device=index)

    for _ in range(2):
        execute(Job(2, host))
        torch.rand(1)
    assert drawn[1] == drawn[3], "each run is repeated once with seeded generators"


def test_generators_follow_from_their_seed_alone():
    assert ambient.generator("a", 1).random() == ambient.generator("a", 1).random()
    assert ambient.generator("a", 1).random() != ambient.generator("a", 2).random()
    assert 0 <= ambient.fresh_seed() < 2**48


def test_a_thread_that_computes_beside_another_on_one_processor_waits_for_it():
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count waits for a processor")

    def waited():
        os.sched_setaffinity(0, {cpu})
        before, turns = ambient.processor_waits()[threading.get_native_id()], 0
        while ambient.processor_waits()[threading.get_native_id()] <= before:
            turns += 1  # the process below has the same processor, and never rests
        told.append(turns)

    cpu, told = min(os.sched_getaffinity(0)), []
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        os.sched_setaffinity(other.pid, {cpu})
        thread = threading.Thread(target=waited)
        thread.start()
        thread.join()
        other.kill()
    assert told


def test_today_is_what_files_say_also_during_a_run(tmp_path):
    def reads(rank):
        file = tmp_path / "file"
        file.write_text("")
        found.append(abs(file.stat().st_mtime - ambient.today()))
        found.append(abs(time.time() - ambient.today()))

    found = []
    go(reads, 1)
    assert found[0] < 600 < found[1], "the program's own clock is virtual"
