"""Ranks as real processes: dispatch rules, deadlines, deaths, natural order, crews, nothing left."""

import gc
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from faults.host import MissingShareMemory
from harness import NotifyOp, Plan, Scenario, UsageError, Verdict, World, registry, run, scenario
from harness.ambient import nap
from harness.errors import NotYet
from harness.fabric import crew, processes
from harness.fabric.arena import Arena, Order
from harness.fabric.carrier import exclusive
from harness.fabric.conductor import Conductor
from harness.scenario import NoParams
from harness.supervise import Limits, zygote
from systems.collectives.rounds import Rounds

MESH = Plan(scenario="collectives.allreduce_mesh", params=Rounds(), ranks=3)


def sizes(size):
    return [size] * size


def program(deed, after=lambda rank: None):
    """A scenario whose rank programs meet, do something, and meet again."""

    @scenario(reference=sizes, ranks=(1, 8))
    def meets(rank):
        rank.window("cells", 4, torch.int32)
        rank.barrier()
        deed(rank)
        rank.barrier()
        after(rank)
        return rank.size

    return meets


def go(made, natural=None, ranks=3):
    plan = Plan(scenario=made.name, params=made.params(), ranks=ranks)
    return run(plan, "processes", scenario=made, natural=natural)


both = pytest.mark.parametrize("natural", [None, 3], ids=["conducted", "natural"])


# Where the program runs -----------------------------------------------------------------------------


@both
def test_each_rank_has_a_process_of_its_own(natural):
    @scenario(reference=sizes)
    def who(rank):
        return os.getpid()

    found = go(who, natural).run.results
    assert len({*(pid for (pid,) in found), os.getpid()}) == 4


def test_warm_processes_are_kept_from_plan_to_plan_and_cold_ones_are_not():
    first = run(MESH, "processes")
    members = [member.child.pid for member in crew.warm(3).members]
    again = run(MESH, "processes")
    assert [member.child.pid for member in crew.warm(3).members] == members
    assert again.run.identity() == first.run.identity()
    go(program(lambda rank: None))
    assert [member.child.pid for member in crew.warm(3).members] == members


def test_a_crew_grows_with_the_world():
    assert run(msgspec.structs.replace(MESH, ranks=6), "processes").verdict is Verdict.PASS
    assert len(crew.warm(2).members) == 6


def test_a_scenario_in_a_users_file_runs_on_warm_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (
        "from harness import scenario\n"
        "@scenario(reference=lambda size: [FACTOR * rank for rank in range(size)])\n"
        "def mine(rank):\n"
        "    rank.barrier()\n"
        "    return FACTOR * rank.index\n"
    )
    for factor in (2, 5):  # and is not taken for what it was before
        Path("mine.py").write_text(text.replace("FACTOR", str(factor)))
        found = registry.find("mine.py::mine")
        outcome = run(Plan(scenario=found.name, params=found.params(), ranks=2), "processes")
        assert outcome.verdict is Verdict.PASS
        assert outcome.run.results == [[0], [factor]]


def test_torch_has_one_thread_in_each_process():
    @scenario(reference=lambda size: [1] * size)
    def threads(rank):
        return torch.get_num_threads()

    assert go(threads).verdict is Verdict.PASS


@both
def test_random_numbers_are_the_ranks_own(natural):
    @scenario(reference=lambda size: [None] * size)
    def draws(rank):
        return float(torch.rand(1))

    first, again = go(draws, natural).run.results, go(draws, natural).run.results
    assert first == again
    assert len({value for (value,) in first}) == 3


# Dispatch rules ---------------------------------------------------------------------------------------


def add_one(rank, x):
    rank.store(x, rank.load(x, rank.index, 1) + 1, rank.index)


def hosted(host, **named):
    return Scenario(
        name="hosted", host=host, reference=lambda params, size: {"x": [torch.ones(1)] * size},
        params=NoParams, **named,
    )


def parts(x):
    return {"x": list(x.split(1))}


@pytest.mark.parametrize("shared", [True, False])
def test_a_host_tensor_must_be_shared_before_the_processes_see_it(shared):
    def host(world: World):
        tensor = torch.zeros(world.size)
        if shared:
            tensor.share_memory_()
        world.prepare(tensor)
        for index in range(world.size):
            world.dispatch(add_one, tensor, device=index)
        return parts(tensor)

    outcome = go(hosted(lambda world, params: host(world)))
    if shared:
        assert outcome.verdict is Verdict.PASS
    else:
        (found,) = outcome.findings
        assert found.name == "exceptions/not_shared"
        assert "'tensor' is not in shared memory" in found.message
        assert "call tensor.share_memory_() before prepare" in found.message


def test_with_the_check_off_each_process_writes_to_memory_of_its_own():
    plan = msgspec.structs.replace(MESH, faults=(MissingShareMemory(),))
    outcome = run(plan, "processes")
    assert outcome.findings[0].name == "integrity/stale_private_memory"


def test_a_tensor_that_was_made_anew_after_it_was_prepared_is_refused():
    def host(world, params):
        x = torch.zeros(world.size).share_memory_()
        world.prepare(x)
        x = torch.zeros(world.size).share_memory_()
        for index in range(world.size):
            world.dispatch(add_one, x, device=index)
        return parts(x)

    (found,) = go(hosted(host)).findings
    assert found.name == "exceptions/dispatch_error"
    assert "was never prepared" in found.message


def test_a_dispatch_loop_that_is_too_short_is_refused():
    def host(world, params):
        x = torch.zeros(world.size).share_memory_()
        world.prepare(x)
        for index in range(world.size - 1):
            world.dispatch(add_one, x, device=index)
        return parts(x)

    (found,) = go(hosted(host)).findings
    assert "no dispatch for rank 2" in found.message


@pytest.mark.parametrize("by_card", [False, True])
def test_device_ids_need_not_begin_at_0(by_card):
    def host(world, params):
        x = torch.zeros(world.size).share_memory_()
        world.prepare(x)
        for index, card in enumerate(world.device_ids):
            world.dispatch(add_one, x, device=card if by_card else index)
        return parts(x)

    outcome = go(hosted(host, device_ids=lambda size: [4 + index for index in range(size)]))
    if by_card:
        (found,) = outcome.findings
        assert "4 is a card in device_ids [4, 5, 6], its logical rank is 0" in found.message
    else:
        assert outcome.verdict is Verdict.PASS


# What is not there ------------------------------------------------------------------------------------


def test_what_only_the_simulated_fabric_has_is_said_in_one_line():
    found = next(one for one in registry.scenarios().values() if one.reference is None)
    plan = Plan(scenario=found.name, params=found.params(), ranks=found.ranks[0])
    with pytest.raises(NotYet, match="judged by what it keeps in the harness's memory"):
        run(plan, "processes")
    with pytest.raises(UsageError, match="the simulated fabric has no natural order"):
        run(MESH, natural=1)


# Deaths and deadlines ---------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_a_signal_is_an_outcome_and_the_first_failing_rank_is_named(natural, number):
    def falls(rank):
        if rank.index == 1:
            os.kill(os.getpid(), number)

    outcome = go(program(falls), natural)
    (found,) = outcome.findings
    assert (found.name, found.rank) == ("exceptions/rank_exited", 1)
    assert f"the process was killed by {number.name}" in found.message
    assert outcome.run.failures[0].error.code == -number
    assert outcome.run.dead == [1]
    assert sorted(outcome.run.peers_lost) == [0, 2], "the others are its consequences"


@both
def test_an_exit_code_is_an_outcome_and_what_was_printed_is_kept(natural):
    def leaves(rank):
        if rank.index == 1:
            sys.stderr.write("no way on\n")
            sys.exit(134)

    outcome = go(program(leaves), natural)
    assert outcome.run.failures[0].error.code == 134
    assert "no way on" in outcome.run.printed[1]
    assert outcome.run.printed[0] == ""


@both
def test_an_exception_leaves_its_traceback_and_the_others_blocked(natural):
    def raises(rank):
        if rank.index == 1:
            raise ValueError("bad")

    outcome = go(program(raises), natural)
    (found,) = outcome.findings
    assert (found.name, found.rank) == ("exceptions/value_error", 1)
    assert 'raise ValueError("bad")' in found.traceback
    assert [blocked.rank for blocked in outcome.run.blocked] == [0, 2]


def test_an_exception_that_cannot_be_pickled_keeps_its_text():
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def raises(rank):
        if rank.index == 0:
            raise Odd(1, lambda: 2)

    (found,) = go(program(raises)).findings
    assert "Odd: 1 and" in found.message


def test_a_result_that_cannot_leave_its_process_is_named():
    @scenario(reference=sizes)
    def secret(rank):
        return lambda: rank

    (found,) = go(secret, ranks=2).findings
    assert "its result cannot leave its process" in found.message


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(processes, "Limits", lambda: Limits(operation=2.5, plan=90.0))


@both
def test_an_operation_limit_gives_all_stacks_with_what_each_rank_awaits(short, natural):
    def loops(rank):
        late = rank.window("late", 1, torch.int32)
        if rank.index == 1:
            rank.wait(late, 0, rank.size - 1)
            while True:
                pass
        rank.notify(late, 1, 0, 1)
        rank.wait(late, 0, 7)

    outcome = go(program(loops), natural)
    failure = outcome.run.failures[0]
    assert outcome.findings[0].name == "progress/no_scheduling_point"
    assert outcome.findings[0].rank == 1
    assert "no answer within the operation limit of 2.5 s" in outcome.findings[0].message
    order = [failure.traceback.index(f"rank {rank} ") for rank in range(3)]
    assert order == sorted(order)
    assert "rank 0 waits for 'late'[0] >= 7; it is 0" in failure.traceback
    assert "in loops" in failure.traceback.split("rank 1 ")[1].split("rank 2 ")[0]


def test_a_stopped_process_is_ended_within_its_limit_and_said_to_be_stopped(short):
    def stops(rank):
        if rank.index == 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    outcome = go(program(stops))
    assert outcome.findings[0].name == "progress/no_scheduling_point"
    assert "the process is stopped (SIGSTOP)" in outcome.run.failures[0].traceback


def test_a_plan_limit_ends_a_poll_in_natural_order(monkeypatch):
    monkeypatch.setattr(processes, "Limits", lambda: Limits(operation=5.0, plan=0.7))

    @scenario(reference=sizes)
    def polls(rank):
        cells = rank.window("cells", 1, torch.int32)
        while not int(rank.load(cells, 0, 1)):
            nap(0.01)
        return rank.size

    outcome = go(polls, natural=1)
    assert outcome.verdict is Verdict.FAIL
    assert "plan limit of 0.7 s" in outcome.findings[0].message


@both
def test_a_lock_dies_with_its_holder(natural):
    """Rank 1 is killed between its operation and its event, so with the world's lock in its hands."""

    def dies(rank):
        if rank.index == 1:
            rank._events.append = lambda event: os.kill(os.getpid(), signal.SIGKILL)
            rank.notify(rank.window("w", 1, torch.int32, group=(1,)), 1, 0, 1, op=NotifyOp.Set)

    outcome = go(program(dies), natural)
    assert outcome.run.dead == [1]
    assert sorted(outcome.run.peers_lost) == [0, 2]


def test_the_lock_is_given_back_by_a_killed_process():
    arena = Arena(os.memfd_create("test"), 1, make=True)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        Order(arena.fd).__enter__()
        os.write(write, b"x")
        nap(100)
    os.read(read, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with arena.order:
        pass
    arena.close()
    for fd in (arena.fd, read, write):
        os.close(fd)


def test_a_plan_that_is_given_up_leaves_processes_that_no_other_plan_meets(monkeypatch):
    run(MESH, "processes")
    members = [member.child.pid for member in crew.warm(3).members]
    told = []

    def interrupted(conductor, lane):
        told.append(lane)
        if len(told) > 5:
            raise KeyboardInterrupt
        return moved(conductor, lane)

    moved = Conductor._move
    with monkeypatch.context() as patched:
        patched.setattr(Conductor, "_move", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(MESH, "processes")
    assert run(MESH, "processes").run.identity() == run(MESH).run.identity()
    assert not set(members) & {member.child.pid for member in crew.warm(3).members}


def test_a_run_inside_a_run_is_refused():
    with exclusive, pytest.raises(UsageError, match="a run was started inside a run"):
        run(MESH, "processes")


# Nothing is left --------------------------------------------------------------------------------------


def ours():
    """Descriptors of this process, and how many processes it and the zygote have."""
    run(MESH, "processes")
    gc.collect()
    parents = {os.getpid(), zygote()._process.pid}
    children = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) in parents:
            children += 1
    segments = [name for name in os.listdir("/dev/shm") if f"_{os.getpid()}_" in name]
    return len(os.listdir("/proc/self/fd")), children, segments, os.listdir(zygote().folder)


def test_kills_and_stops_in_a_row_leave_nothing(short):
    def falls(rank):
        if rank.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def stops(rank):
        if rank.index == 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    killed = registry.faults()["killed"](rank=1, nth=3)
    before = ours()
    for number in range(9):
        if number % 3 == 2:
            go(program(falls), natural=None if number % 2 else 1)
        else:
            run(msgspec.structs.replace(MESH, faults=(killed,)), "processes", natural=number % 2 or None)
    go(program(stops))
    assert ours() == before
