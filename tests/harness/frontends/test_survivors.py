"""What survivors of a crash make of it: any end with an error is fine, whoever says it and how."""

import pytest

from harness.finding import Verdict
from harness.plan import Plan
from harness.registry import faults
from harness.run import run

TRAIN = """
    import os, sys, threading, time, traceback
    HEARTBEAT
    def main():
        dist.init_process_group("gloo")
        x = torch.ones(2)
        for step in range(3):
            dist.all_reduce(x)
        print(x.tolist())
    try:
        main()
    except Exception:
        AFTER
"""
ENDS = {
    "sys.exit": "sys.exit(1)",
    "os._exit": "os._exit(1)",
    "later": "failed = True\n    if 'failed' in globals():\n        sys.exit(3)",
    "another error": "raise ValueError('while it was handled')",
    "closing": "dist.destroy_process_group()  # an error if init_process_group has failed\n        raise",
}
WATCHDOGS = {
    "heartbeat": """last = time.monotonic()
    def watch():
        while not over.wait(5):
            if time.monotonic() - last > 300:
                os._exit(9)
    over = threading.Event()
    threading.Thread(target=watch, name="watchdog", daemon=True).start()""",
    "timer": """timer = threading.Timer(300, os._exit, (9,))
    timer.daemon = True
    timer.start()""",
}


def outcomes(script, begin, heartbeat, after):
    text = TRAIN.replace("HEARTBEAT", heartbeat).replace("AFTER", after)
    scenario = script.scenario(text, begin=begin)
    for nth in range(1, 5):
        plan = Plan(
            scenario=scenario.name, params=scenario.params(), ranks=2,
            faults=(faults()["crash"](rank=0, nth=nth),),
        )
        yield run(plan, scenario=scenario)


@pytest.mark.parametrize("end", ENDS)
def test_a_survivor_that_ends_with_an_exit_code_or_an_error_of_its_own(script, begin, end):
    for outcome in outcomes(script, begin, "", ENDS[end]):
        assert outcome.verdict is Verdict.PASS, outcome.findings
        assert outcome.run.dead == [0]


@pytest.mark.parametrize("watchdog", WATCHDOGS)
def test_a_survivor_loses_its_peer_before_a_watchdog_of_its_own_strikes(script, begin, watchdog):
    for outcome in outcomes(script, begin, WATCHDOGS[watchdog], "raise"):
        assert outcome.verdict is Verdict.PASS, outcome.findings
        assert outcome.run.peers_lost == [1]


def test_a_thread_that_waits_for_the_dead_loses_it_and_its_queue_does_not(script):
    outcome = script("""
        import queue, threading
        feed = queue.Queue()
        def produce():
            try:
                for _ in range(4):
                    feed.put(dist.all_reduce(torch.ones(2)))
            except dist.DistBackendError as error:
                feed.put(error)
        threading.Thread(target=produce, name="produce", daemon=True).start()
        while not isinstance(feed.get(), Exception):
            pass
        print("told")
    """, 2, faults=(faults()["crash"](rank=0, nth=5),))
    assert outcome.run.dead == [0]
    assert outcome.run.printed[1] == "told\n", outcome.findings


def test_a_rank_that_exits_without_having_lost_anybody_is_a_finding(script):
    outcome = script("""
        import sys
        dist.all_reduce(torch.ones(2))
        if rank == 1:
            sys.exit(1)
    """, 2)
    assert [one.name for one in outcome.findings] == ["exceptions/rank_exited"]


def test_a_survivor_that_polls_beside_one_that_waits_is_told_as_well(script):
    outcome = script("""
        import threading, time
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        if rank == 0:
            dist.barrier()
        work = dist.barrier(async_op=True)
        if rank == 1:
            work.wait()
        while not work.is_completed():
            pass
    """, 3, faults=(faults()["crash"](rank=0, nth=2),))
    assert (outcome.verdict, outcome.run.dead) == (Verdict.PASS, [0]), outcome.findings
    assert sorted(outcome.run.peers_lost) == [1, 2]
