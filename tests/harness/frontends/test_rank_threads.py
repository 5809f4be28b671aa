"""Threads of a torch.distributed program: lanes of their rank, whose schedule is the plan's."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from harness.fabric.carrier import LIMIT_SECONDS
from harness.fabric.late_lanes import running_number
from harness.finding import Verdict
from harness.hunt import hunt
from harness.minimise import minimise
from harness.plan import Plan, Preempt
from harness.portfolio import Order
from harness.run import execute_plan, explore, run
from harness.schedule import PCT, POS, PausedRank, RandomWalk, deviations_of

PREFETCH = """
    import queue, threading
    feed = queue.Queue(2)
    def produce():
        for number in range(4):
            feed.put(torch.full((3,), float(number)))
        feed.put(None)
    threading.Thread(target=produce, name="produce", daemon=True).start()
    while (batch := feed.get()) is not None:
        dist.all_reduce(batch)
        print(batch.tolist())
"""

CHECKPOINT = """
    import threading
    group = dist.new_group() if OWN else None
    def save(state):
        dist.barrier(group=group)
        dist.all_reduce(state, group=group)
    weight, saver = torch.ones(4), None
    for step in range(3):
        if saver:
            saver.join()
        saver = threading.Thread(target=save, args=(weight.clone(),), name="saver")
        saver.start()
        gradient = torch.ones(4)
        dist.all_reduce(gradient)
        weight += gradient
    saver.join()
    print(weight.tolist())
"""

LOCKED = """
    import threading
    group = dist.new_group()
    lock = threading.Lock()
    def metrics():
        with lock:
            dist.barrier(group=group)
    other = threading.Thread(target=metrics, name="metrics")
    other.start()
    with lock:
        dist.all_reduce(torch.ones(2))
    other.join()
"""


def hunted(scenario, plans=200):
    return hunt(Order(scenario=scenario, ranks=(2, 2), root_seed=7, plans_max=plans))


def test_a_queue_that_a_thread_fills(script):
    outcome = script(PREFETCH, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert outcome.run.printed[0].splitlines()[1:3] == ["[2.0, 2.0, 2.0]", "[4.0, 4.0, 4.0]"]
    assert outcome.run.threads == {2: "produce", 3: "produce"}
    assert {event.owner for event in outcome.run.events if event.kind == "thread_begin"} == {2, 3}


many = pytest.mark.parametrize("plans", [40, pytest.param(200, marks=pytest.mark.nightly)])


@many
def test_two_queues_are_silent(script, plans):
    result = hunted(script.scenario(PREFETCH), plans)
    assert result.finding is None
    assert result.statistics.plans >= plans


def test_an_executor(script):
    outcome = script("""
        from concurrent.futures import ThreadPoolExecutor, as_completed
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(lambda n: torch.ones(2) * n, range(6)))
            powers = [pool.submit(pow, 2, n) for n in range(4)]
            print(sorted(one.result() for one in as_completed(powers)))
            try:
                pool.submit(int, "x").result()
            except ValueError as error:
                print("caught", type(error).__name__)
        whole = sum(parts)
        dist.all_reduce(whole)
        left = ThreadPoolExecutor(1)  # never shut down: ends with the rank
        print(whole.tolist(), left.submit(pow, 2, 5).result())
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert outcome.run.printed == ["[1, 2, 4, 8]\ncaught ValueError\n[30.0, 30.0] 32\n"] * 2


def test_an_executor_that_several_threads_use_beside_each_other(script):
    text = """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        def work():
            pool.submit(dist.get_rank).result()
        users = [threading.Thread(target=work) for _ in range(2)]
        for one in users: one.start()
        for one in users: one.join()
        dist.barrier()
    """
    result = hunted(script.scenario(text), plans=40)
    assert result.finding is None, result.finding


def test_a_monitor_wakes_in_virtual_time_and_daemons_end_with_their_rank(script):
    outcome = script("""
        import atexit, threading, time
        class Monitor(threading.Thread):
            def __init__(self):
                super().__init__(daemon=True)
                self.ended, self.ticks = threading.Event(), 0
                atexit.register(self.stop)
            def stop(self):
                self.ended.set()
                self.join()
                print(self.ticks, "ticks", round(time.monotonic()))
            def run(self):
                while not self.ended.wait(10):
                    self.ticks += 1
        Monitor().start()
        def beat():
            while True:
                time.sleep(1)
        threading.Thread(target=beat, daemon=True).start()
        time.sleep(35)
        dist.barrier()
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert outcome.run.printed == ["3 ticks 35\n"] * 2


def test_what_is_made_of_locks(script):
    outcome = script("""
        import queue, threading
        ended = []
        barrier, gate = threading.Barrier(3), threading.Semaphore(2)
        turn, lock = threading.Condition(), threading.RLock()
        def work(number):
            barrier.wait()
            with gate, lock, lock, turn:
                turn.wait_for(lambda: len(ended) == number)
                ended.append(number)
                turn.notify_all()
        crew = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for one in crew:
            one.start()
        with lock:
            free = threading.Lock()
            print(free.acquire(timeout=3), free.acquire(timeout=3), free.acquire(blocking=False))
        barrier.wait()
        try:
            queue.SimpleQueue().get(timeout=2)
        except queue.Empty:
            print("empty")
        print([one.is_alive() for one in crew], threading.active_count())
    """.replace("with gate, lock, lock, turn", "with gate, turn"), 1)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert outcome.run.printed == ["True False False\nempty\n[False, False] 1\n"]


def test_threads_are_the_ranks_own(script):
    outcome = script("""
        import threading
        names = []
        def work():
            names.append((threading.current_thread().name, threading.current_thread().daemon))
        one = threading.Thread(target=work)
        one.start()
        one.join()
        print(names, threading.current_thread() is threading.main_thread(), len(threading.enumerate()))
    """, 3)
    assert outcome.run.printed == ["[('Thread-1 (work)', False)] True 1\n"] * 3
    assert "Thread-1 (work)" not in {one.name for one in threading.enumerate()}


def test_a_rank_ends_when_its_threads_have(script):
    outcome = script("""
        import atexit, threading, time
        def work():
            time.sleep(5)
            print("work")
        atexit.register(print, "exit")
        threading.Thread(target=work).start()
        print("main")
    """, 2)
    assert outcome.run.printed == ["main\nwork\nexit\n"] * 2


def test_a_thread_that_raises_prints_and_does_not_fail_its_rank(script):
    outcome = script("""
        import threading
        def work():
            raise ValueError("boom")
        one = threading.Thread(target=work, name="worker")
        one.start()
        one.join()
        dist.barrier()
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert "Exception in thread worker:" in outcome.run.printed[0]
    assert "ValueError: boom" in outcome.run.printed[1]


def test_random_numbers_are_shared_by_the_threads_of_a_rank(script):
    outcome = script("""
        import random, threading
        def draw():
            print(random.random(), torch.rand(1).item())
        one = threading.Thread(target=lambda: (random.seed(3), torch.manual_seed(3)))
        one.start()
        one.join()
        draw()
        random.seed(3), torch.manual_seed(3)
        draw()
    """, 1)
    first, second = outcome.run.printed[0].splitlines()
    assert first == second


# Collectives from several threads -------------------------------------------------------------------


@many
def test_a_checkpoint_thread_with_a_group_of_its_own_is_silent(script, plans):
    result = hunted(script.scenario(CHECKPOINT.replace("OWN", "True")), plans)
    assert result.finding is None, result.finding
    assert result.statistics.plans >= plans


def test_a_checkpoint_thread_on_the_default_group_is_found_and_shrunk(script):
    scenario = script.scenario(CHECKPOINT.replace("OWN", "False"))
    result = hunted(scenario, plans=5)
    assert result.finding is not None
    assert result.finding.checker == "torch"
    assert "(thread 'saver')" in " ".join((result.finding.message, *result.finding.evidence))
    assert any("the main thread" in line for line in result.finding.evidence)
    assert "group of its own" in result.finding.remedy
    small = minimise(result.outcome, result.finding, scenario, seconds=5).outcome
    assert len(small.plan.schedule) <= 2
    assert run(small.plan, scenario=scenario).run.identity() == small.run.identity()


def test_a_lock_held_over_a_collective_is_one_cycle(script):
    result = hunted(script.scenario(LOCKED), plans=20)
    assert result.finding is not None
    assert result.finding.name == "torch/cycle"
    assert "Lock.acquire of lock at " in result.finding.message
    assert "rank 1, thread 'metrics' waits in barrier()" in result.finding.message
    assert "holds a lock" in result.finding.cause


def test_the_default_run_of_it_is_clean(script):
    assert script(LOCKED, 2).verdict is Verdict.PASS


def test_functional_collectives_and_new_groups_in_threads(script):
    outcome = script("""
        import threading
        import torch.distributed._functional_collectives as functional
        def work(group, out):
            out.append(functional.all_reduce(torch.ones(2), "sum", group).tolist())
        for _ in range(2):
            group, out = dist.new_group(), []
            one = threading.Thread(target=work, args=(group, out))
            one.start()
            one.join()
            print(out)
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert outcome.run.printed[1] == "[[2.0, 2.0]]\n[[2.0, 2.0]]\n"


def test_async_save_with_its_own_group(script, tmp_path):
    outcome = script(f"""
        import torch.distributed.checkpoint as dcp
        group = dist.new_group()
        state = {{"weight": torch.nn.Linear(4, 4).state_dict()}}
        saved = dcp.async_save(state, checkpoint_id={str(tmp_path / "saved")!r}, process_group=group)
        dist.all_reduce(torch.ones(3))
        saved.result()
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert (tmp_path / "saved" / ".metadata").is_file()


# Standstills ----------------------------------------------------------------------------------------


def test_a_queue_that_nobody_fills(script):
    (found, *_) = script("""
        import queue, threading
        feed = queue.Queue()
        def fill():
            feed.put(1)
            raise ValueError("the second one")
        threading.Thread(target=fill, name="fill").start()
        feed.get()
        dist.barrier()
        feed.get()
    """, 2).findings
    assert found.name == "torch/unsatisfied"
    assert found.message.startswith("rank 0 waits in Queue.get of feed at ")
    (told,) = [line for line in found.evidence if line.startswith("rank 0, thread 'fill'")]
    assert "program.py:13 in fill: ValueError: the second one" in told
    assert found.cause.startswith("a thread raised")


def test_what_a_thread_raised_stands_beside_what_failed_after_it(script):
    (found, *_) = script("""
        import os, threading, time
        def fill():
            raise ValueError("bad shard")
        def watch():
            time.sleep(60)
            os._exit(7)
        threading.Thread(target=fill, name="fill").start()
        threading.Thread(target=watch, name="watch").start()
        time.sleep(120)
    """, 2).findings
    assert found.name == "exceptions/rank_exited"
    assert any(line.startswith("rank 0, thread 'fill' raised at ") for line in found.evidence)


def test_a_join_is_told_with_the_thread_and_what_it_waits_for(script):
    (found, *_) = script("""
        import threading
        ready = threading.Event()
        other = threading.Thread(target=ready.wait, name="other")
        other.start()
        other.join()
    """, 1).findings
    assert found.name == "torch/unsatisfied"
    told = " ".join((found.message, *found.evidence))
    assert "Thread.join of other (thread 'other') at " in told
    assert "; for rank 0, thread 'other'" in told


def test_a_heartbeat_does_not_keep_a_blocked_world_alive(script):
    outcome = script("""
        import threading, time
        def beat():
            while True:
                time.sleep(1)
        threading.Thread(target=beat, daemon=True).start()
        if rank == 0:
            dist.barrier()
        else:
            dist.recv(torch.ones(1), 0)
    """, 2)
    assert outcome.run.ended == "blocked"
    assert outcome.findings[0].checker == "torch"
    assert [one.lane for one in outcome.run.blocked] == [0, 1]


def test_a_long_sleep_outlasts_heartbeats(script):
    outcome = script("""
        import threading, time
        def beat():
            while True:
                time.sleep(1)
        threading.Thread(target=beat, daemon=True).start()
        time.sleep(100000)
        dist.barrier()
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings


def test_a_thread_that_spins_is_named(script, monkeypatch):
    assert LIMIT_SECONDS > 1
    monkeypatch.setattr("harness.fabric.carrier.LIMIT_SECONDS", 0.4)
    (found, *_) = script("""
        import threading
        def spin():
            while True:
                pass
        other = threading.Thread(target=spin, name="spinner")
        other.start()
        other.join()
    """, 1).findings
    assert found.name == "progress/no_scheduling_point"
    assert "rank 0, thread 'spinner' reached no scheduling point" in found.message


# What is refused, what ends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("from multiprocessing.pool import ThreadPool; ThreadPool(1)", "multiprocessing"),
    ],
)
def test_threads_for_whom_the_operating_system_waits_are_refused(script, text, told):
    (found, *_) = script(text, 2).findings
    assert found.name == "exceptions/thread_started"
    assert f"is started for {told}" in found.message
    assert "program.py:" in found.message


def test_a_process_started_in_a_thread_is_refused(script):
    (found, *_) = script("""
        import subprocess, threading
        other = threading.Thread(target=subprocess.run, args=(["true"],), name="other")
        other.start()
        other.join()
    """, 1).findings
    assert found.name == "exceptions/process_started"
    assert found.message.startswith("rank 0, thread 'other' raised")


def test_too_many_threads_at_one_time(script):
    (found, *_) = script("""
        import threading
        gate = threading.Event()
        for _ in range(300):
            threading.Thread(target=gate.wait, daemon=True).start()
    """, 1).findings
    assert found.kind == "thread_started"
    assert "256" in found.message


def test_a_thousand_short_threads_use_one_after_another_the_same(script):
    before = threading.active_count()
    outcome = script("""
        import threading
        for _ in range(1000):
            one = threading.Thread(target=int)
            one.start()
            one.join()
    """, 1)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert threading.active_count() <= before + 3


@pytest.mark.parametrize("plans", [60, pytest.param(1000, marks=pytest.mark.nightly)])
def test_plans_leave_no_threads(script, plans):
    scenario = script.scenario(LOCKED)
    seen = []
    for number in range(plans):
        schedule = (Preempt(number % 40, number % 3),)
        run(Plan(scenario=scenario.name, params=scenario.params(), ranks=2, schedule=schedule),
            scenario=scenario)
        seen.append(len(sys._current_frames()))
    assert seen[-1] == max(seen[:20])


REPLAY = """
import sys
from harness.frontends.torch_distributed.script import script_scenario
from harness.plan import Plan, Preempt
from harness.run import run

path = sys.argv[1]
scenario = script_scenario(path, open(path, "rb").read())
for at in (3, 18, 25):
    plan = Plan(
        scenario=scenario.name, params=scenario.params(), ranks=2, schedule=(Preempt(at, 1),)
    )
    outcome = run(plan, scenario=scenario)
    print(outcome.run.identity(), [one.identity for one in outcome.findings])
"""


@pytest.mark.parametrize("text", [LOCKED, PREFETCH])
def test_a_fresh_process_under_another_hash_seed_repeats_it(script, text):
    script.scenario(text)
    said = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(
            [sys.executable, "-c", REPLAY, str(script.folder / "program.py")], env=env,
            capture_output=True, text=True, check=True,
        )
        said.append(done.stdout)
    assert said[0] == said[1]
    assert said[0].count("\n") == 3


def test_numbers_of_owners_during_a_run_and_after_it():
    assert [running_number(n, 5, 2) for n in range(8)] == [0, 1, 2, -2, -3, 3, 4, 5]
    assert [running_number(n, 3, 0) for n in range(5)] == [0, 1, 2, 3, 4]


def test_what_threads_print_in_any_order_is_no_result(script):
    text = """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(2) as pool:
            print(list(pool.map(lambda n: print(n) or n, range(4))))
        dist.barrier()
    """
    result = hunted(script.scenario(text), plans=40)
    assert result.finding is None, result.finding


EXECUTOR = """
    import logging
    from concurrent.futures import ThreadPoolExecutor, as_completed
    with ThreadPoolExecutor(3) as pool:
        parts = [pool.submit(pow, 2, n) for n in range(4)]
        for one in as_completed(parts):
            logging.getLogger("own").debug("%d", one.result())
    dist.barrier()
"""


@pytest.mark.parametrize("text", [EXECUTOR, PREFETCH, CHECKPOINT.replace("OWN", "False"), LOCKED])
@pytest.mark.parametrize("seeds", [2, pytest.param(25, marks=pytest.mark.nightly)])
def test_explored_runs_become_deviations_and_back(script, text, seeds):
    scenario = script.scenario(text)
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=2)
    for seed in range(seeds):
        for explorer in (RandomWalk(seed), PCT(3, 60, seed), POS(seed), PausedRank(seed % 2, seed)):
            explored = explore(plan, scenario, explorer).run
            schedule = deviations_of(plan, scenario, explored)
            repeated = execute_plan(msgspec.structs.replace(plan, schedule=schedule), scenario)
            assert repeated.identity() == explored.identity()
