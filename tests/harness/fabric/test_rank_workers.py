"""Lanes as an executor, events that several lanes wait for, waits that end in time, clocks that jump."""

import msgspec
import pytest
import torch

from faults.environment import Crash
from faults.storage import ClockJump
from faults.timing import LateNotify
from harness import Plan, Preempt, RankClock, RankWorkers, Scenario, Verdict, rank_call, run, scenario
from harness.errors import WrongArgument
from harness.hunt import Order, hunt
from harness.report.events import wordings


def plan_of(program, *faults, ranks=1):
    return Plan(scenario=program.name, params=program.params(), ranks=ranks, faults=faults)


# Waits with a time limit --------------------------------------------------------------------------


@scenario(reference=lambda size: [[False, True, True]] * size, ranks=(1, 4))
def limited(rank):
    """Wait for what comes later, then for what has come, then longer than it takes."""
    cells = rank.window("cells", 2, torch.int32)
    left = (rank.index - 1) % rank.size
    first = rank.wait(cells, 0, 1, timeout=0.0)
    rank.sync()
    rank.notify(cells, left, 0, 1)
    second = rank.wait(cells, 0, 1, timeout=0.5)
    third = rank.wait(cells, 0, 1)
    return [first, second, third]


def test_a_wait_says_whether_the_value_came():
    outcome = run(plan_of(limited, ranks=3), scenario=limited)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    expired = [event for event in outcome.run.events if event.kind == "expired"]
    assert sorted(event.owner for event in expired) == [0, 1, 2]
    assert wordings(outcome.run, expired[0])[0] == "stop waiting for cells[0] = 0"
    assert str(outcome.run.site(expired[0])) == "limited:wait#0"


@scenario(reference=lambda size: [1.5] * size, ranks=(1, 4))
def alone(rank):
    """Nobody notifies: the time passes, and only the time."""
    clock = RankClock(rank)
    cells = rank.window("cells", 1, torch.int32)
    before = clock.now()
    assert not rank.wait(cells, 0, 1, timeout=1.0)
    assert not rank.wait(cells, 0, 1, timeout=0.5)
    return round(clock.now() - before, 3)


def test_time_passes_while_nobody_can_move():
    outcome = run(plan_of(alone), scenario=alone)
    assert outcome.verdict is Verdict.PASS, outcome.findings


@scenario(reference=lambda size: [[True, False]] * size, ranks=(1, 4))
def cut_short(rank):
    """The value comes within the limit; the alarm of that wait must not end the next one."""
    cells = rank.window("cells", 2, torch.int32)
    rank.notify(cells, rank.index, 0, 1)
    came = rank.wait(cells, 0, 1, timeout=0.001)
    clock = RankClock(rank)
    before = clock.now()
    late = rank.wait(cells, 1, 1, timeout=5.0)
    assert clock.now() - before >= 5.0
    return [came, late]


def test_an_alarm_ends_the_wait_that_set_it_and_no_other():
    for held in ((), (LateNotify(),)):
        outcome = run(plan_of(cut_short, *held, ranks=2), scenario=cut_short)
        assert outcome.verdict is Verdict.PASS, outcome.findings


def test_no_schedule_makes_a_correct_program_miss_its_value():
    assert hunt(Order(limited, 1, plans_max=150)).finding is None


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_time_limit_is_no_less_than_nothing(timeout):
    @scenario(reference=lambda size: [None] * size, ranks=(1, 4))
    def wrong(rank):
        """Waits for a negative time."""
        rank.wait(rank.window("cells", 1, torch.int32), 0, 1, timeout=timeout)

    (finding,) = run(plan_of(wrong), scenario=wrong).findings
    assert finding.name == "exceptions/wrong_argument"
    assert "timeout" in finding.message


# Workers ------------------------------------------------------------------------------------------


def working(jobs, workers, body):
    """A scenario of one client lane and so many workers; `body(client, made)` uses them."""

    def program(rank, cells, made):
        mine = made.setdefault(rank.index, RankWorkers(rank, cells))
        if rank.lane:
            mine.serve()
            return torch.zeros(())
        try:
            return torch.tensor(float(body(rank, mine)))
        finally:
            mine.close()

    def host(world, params):
        cells = world.alloc([1 + jobs], torch.int32, name="work")
        made = {}
        for device in range(world.size):
            world.dispatch(program, cells, made, device=device, lanes=1 + workers)

    def reference(params, size):
        lanes = [torch.tensor(float(jobs))] + [torch.zeros(())] * workers
        return {"result": [lanes] * size}

    return Scenario(name="working", host=host, reference=reference)


def count(rank, workers, jobs):
    """Submit jobs that add one and set an event; wait for each."""
    total = [0]

    def job(event):
        def perform():
            rank_call(rank, "store_job", lambda: None)
            total[0] += 1
            event.set()

        return perform

    events = [workers.event() for _ in range(jobs)]
    for event in events:
        workers.submit(job(event))
    for event in events:
        assert event.wait(None)
        assert event.is_set()
    return total[0]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_job_is_done_once_under_every_schedule(workers):
    program = working(5, workers, lambda rank, mine: count(rank, mine, 5))
    found = hunt(Order(program, 2, plans_max=300, ranks=(1, 2)))
    assert found.finding is None, found.finding
    assert len(found.statistics.identities) > 200


def test_a_schedule_gives_a_job_to_another_worker():
    program = working(2, 2, lambda rank, mine: count(rank, mine, 2))

    def owners(*schedule):
        record = run(msgspec.structs.replace(plan_of(program), schedule=schedule), scenario=program).run
        return {record.lanes[e.owner] for e in record.events if e.kind == "store_job"}

    assert owners() == {(0, 1)}
    assert any(len(owners(Preempt(at, to))) == 2 for at in range(30) for to in range(2))


def test_an_event_that_nobody_sets_is_a_deadlock_that_names_the_cell():
    def forgets(rank, workers):
        event = workers.event()
        workers.submit(lambda: None)
        event.wait(None)

    outcome = run(plan_of(working(1, 1, forgets)), scenario=working(1, 1, forgets))
    assert outcome.findings[0].name == "deadlock/missing_notify"
    assert "work" in outcome.findings[0].message


def test_an_event_that_nobody_sets_ends_a_limited_wait():
    def limited_wait(rank, workers):
        return 1 + workers.event().wait(2.0)

    program = working(1, 1, limited_wait)
    assert run(plan_of(program), scenario=program).verdict is Verdict.PASS


def test_closed_workers_take_no_job_and_events_have_a_bound():
    seen = []

    def closes(rank, workers):
        workers.event()
        with pytest.raises(WrongArgument, match="room for 1 events"):
            workers.event()
        workers.close()
        with pytest.raises(RuntimeError, match="closed"):
            workers.submit(lambda: seen.append(1))
        return 1

    program = working(1, 1, closes)
    outcome = run(plan_of(program), scenario=program)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert seen == []


def test_a_rank_that_dies_takes_its_workers_along():
    program = working(3, 2, lambda rank, mine: count(rank, mine, 3))
    for nth in range(20):
        record = run(plan_of(program, Crash(rank=0, nth=nth)), scenario=program).run
        assert record.fired == [1], nth
        assert (record.dead, record.failures, record.blocked) == ([0], [], [])


# Clocks and calls ---------------------------------------------------------------------------------


@scenario(reference=lambda size: [[0.0, 100.0, 100.0]] * size, ranks=(1, 4))
def reads_the_time(rank):
    """Three readings of the wall clock."""
    clock = RankClock(rank)
    start, monotonic = clock.time(), clock.now()
    readings = [round(clock.time() - start, 3) for _ in range(3)]
    assert clock.now() - monotonic < 1.0
    return readings


def test_a_clock_that_jumps_stays_there_and_the_monotonic_one_does_not():
    jump = ClockJump(rank=0, nth=2, seconds=100)
    outcome = run(plan_of(reads_the_time, jump), scenario=reads_the_time)
    assert outcome.run.fired == [1]
    assert outcome.verdict is Verdict.PASS, outcome.findings


@scenario(reference=lambda size: [3] * size, ranks=(1, 4))
def calls(rank):
    """A call of some system, with an argument that faults may change."""
    return rank_call(rank, "store_add", lambda block_ids, more: len(block_ids) + more, "1, 2",
                     block_ids=[b"a", b"b"], more=1)


def test_a_call_is_an_event_with_its_line_and_its_words():
    record = run(plan_of(calls), scenario=calls).run
    (event,) = [event for event in record.events if event.kind == "store_add"]
    assert str(record.site(event)) == "calls:store_add#0"
    assert wordings(record, event) == ["store add 1, 2", "store add"]
