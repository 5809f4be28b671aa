"""Locks of a program's threads: outside of runs they are locks like any other; in runs they are waits."""

import threading

import pytest

from harness.fabric.frames import is_library
from harness.finding import Verdict
from harness.frontends.torch_distributed import lane_locks
from harness.frontends.torch_distributed.lane_locks import LaneLock, mine, stand
from harness.hunt import hunt
from harness.portfolio import Order


def test_outside_of_runs_it_is_a_lock():
    lock = LaneLock()
    assert mine() is None
    with lock:
        assert lock.locked()
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.01)
    assert lock.acquire()
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_outside_of_runs_threads_wait_for_it():
    lock, seen = LaneLock(), []

    def work():
        with lock:
            seen.append("other")

    other = threading.Thread(target=work)
    with lock:
        other.start()
        seen.append("main")
    other.join()
    assert seen == ["main", "other"]


def test_a_condition_of_one(script):
    lock = LaneLock()
    condition = threading.Condition(lock)
    with condition:
        assert not condition.wait(0.01)
    assert not lock.locked()


def test_errors_are_those_of_a_lock(script):
    outcome = script("""
        import threading
        lock = threading.Lock()
        for arguments in ({"timeout": -2}, {"blocking": False, "timeout": 1}):
            try:
                lock.acquire(**arguments)
            except ValueError as error:
                print(error)
        try:
            lock.release()
        except RuntimeError as error:
            print(error)
    """, 1)
    assert outcome.run.printed[0].splitlines() == [
        "timeout value must be a non-negative number",
        "can't specify a timeout for a non-blocking call",
        "release unlocked lock",
    ]


def test_a_rank_without_threads_takes_its_locks_without_events(script):
    outcome = script("""
        import threading
        lock, event = threading.RLock(), threading.Event()
        with lock:
            event.set()
        event.wait()
    """, 2)
    assert outcome.verdict is Verdict.PASS
    assert not [event for event in outcome.run.events if event.kind.startswith("lock")]


def test_a_lock_taken_twice_by_the_only_thread(script):
    (found, *_) = script("""
        import threading
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    """, 1).findings
    assert found.name == "torch/unsatisfied"
    assert "rank 0 waits in Lock.acquire of lock at " in found.message


RACE = """
    import threading
    lock, order = threading.Lock(), []
    def work(name):
        with lock:
            order.append(name)
    crew = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    print(order)
"""


def test_the_schedule_decides_who_comes_first(script):
    order = Order(scenario=script.scenario(RACE), ranks=(1, 1), root_seed=7, plans_max=60)
    result = hunt(order)
    assert result.finding is not None
    assert result.finding.name == "torch/schedule_dependent_result"
    assert result.outcome.run.printed == ["['b', 'a']\n"]


def test_pollers_of_a_lock_let_others_move(script):
    outcome = script("""
        import threading
        lock = threading.Lock()
        lock.acquire()
        def work():
            while not lock.acquire(blocking=False):
                pass
            print("mine")
        other = threading.Thread(target=work)
        other.start()
        dist.barrier()
        lock.release()
        other.join()
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert outcome.run.printed == ["mine\n"] * 2


def test_a_lock_that_a_library_makes_during_its_import_is_a_real_one(script, monkeypatch):
    monkeypatch.setattr(
        lane_locks, "is_library", lambda path: path.endswith("own_locks.py") or is_library(path)
    )
    script.file("own_locks.py", "import threading\nlock = threading.Lock()\n")
    script.file("users_locks.py", "import threading\nlock = threading.Lock()\n")
    outcome = script("""
        import own_locks, users_locks
        print(type(own_locks.lock).__name__, type(users_locks.lock).__name__)
    """, 1)
    assert outcome.run.printed == ["lock LaneLock\n"]


def test_where_the_caller_stands():
    code, lasti, importing = stand(None)
    assert (code, lasti, importing) == (None, -1, False)
