"""What the operating system does to a rank's process: each fault fires, and changes an outcome."""

import os
import signal
import tempfile
from dataclasses import dataclass

import pytest
import torch

from faults.processes import (
    Exits,
    FileSizeLimit,
    Killed,
    MemoryLimit,
    NativeAbort,
    NeverStarts,
    OpenFilesLimit,
    Slowed,
    Stopped,
)
from harness import (
    Fault,
    Limits,
    NotifyOp,
    PeerLost,
    Plan,
    Scenario,
    UsageError,
    Verdict,
    registry,
    run,
    scenario,
)
from harness.errors import PlanError
from harness.hunt import fault_type


def nobody_alone(size):
    return [size] * size


@scenario(reference=nobody_alone, ranks=(2, 4))
def meets(rank):
    """Every rank meets every other one, twice."""
    cells = rank.window("cells", rank.size, torch.int32)
    for peer in range(rank.size):
        rank.notify(cells, peer, rank.index, 1)
    for peer in range(rank.size):
        rank.wait(cells, peer, 1)
    rank.barrier()
    return rank.size


@scenario(reference=nobody_alone, ranks=(2, 4))
def hungry(rank):
    """Takes memory, opens files and writes one, like any program."""
    rank.barrier()
    held = torch.zeros(64 << 20, dtype=torch.uint8)
    files = [open(os.devnull) for _ in range(8)]  # noqa: SIM115
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 16))
    for one in files:
        one.close()
    del held
    return rank.size


def waits(seconds):
    """A scenario whose rank 0 waits so long for rank 1, which has a little to compute."""

    @scenario(reference=nobody_alone, ranks=(2, 2))
    def waits(rank):
        cells = rank.window("cells", 1, torch.int32)
        rank.barrier()
        if rank.index == 1:
            started = os.times()
            while sum(os.times()[:2]) - sum(started[:2]) < 0.1:
                pass
            rank.notify(cells, 0, 0, 1, op=NotifyOp.Set)
        elif not rank.wait(cells, 0, 1, timeout=seconds):
            return 0
        return rank.size

    return waits


IMPATIENT, PATIENT = waits(0.5), waits(100.0)
LIMITS = Limits(operation=60, plan=200)


@dataclass(frozen=True)
class Row:
    """One fault with a program and what it does to it: the finding, or the ranks that died or lost
    a peer."""

    fault: Fault
    program: Scenario
    finding: str = ""
    dead: tuple[int, ...] = ()
    natural: int | None = None


ROWS = [
    Row(Killed(rank=1, nth=2), meets, dead=(1,)),
    Row(NativeAbort(rank=1, nth=2), meets, dead=(1,)),
    Row(Exits(rank=1, nth=2, code=3), meets, dead=(1,)),
    Row(Exits(rank=1, nth=2, code=0), meets, dead=(1,)),
    Row(NeverStarts(rank=1), meets, dead=(1,)),
    Row(MemoryLimit(rank=1, mebibytes=8), hungry, "exceptions/runtime_error"),
    Row(OpenFilesLimit(rank=1, files=2), hungry, "exceptions/os_error"),
    Row(FileSizeLimit(rank=1, nbytes=100), hungry, "exceptions/os_error"),
    Row(Stopped(rank=1, nth=2, milliseconds=3000), IMPATIENT, "integrity/wrong_value", natural=1),
    Row(
        Slowed(rank=1, nth=1, percent=1, milliseconds=3000), IMPATIENT, "integrity/wrong_value",
        natural=1,
    ),
]


def plan_of(row, *, faulty=True):
    return Plan(
        scenario=row.program.name, params=row.program.params(), ranks=2,
        faults=(row.fault,) if faulty else (),
    )


def title(row):
    return f"{row.fault.tag()}-{row.program.name}-{row.dead}"


def test_every_fault_has_a_row():
    registered = {n for n, f in registry.faults().items() if f.__module__ == "faults.processes"}
    assert {row.fault.tag() for row in ROWS} == registered
    assert all(registry.faults()[name].fabrics == ("processes", "torchrun") for name in registered)


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_fires_and_changes_the_outcome(row):
    outcome = run(plan_of(row), "processes", scenario=row.program, natural=row.natural, limits=LIMITS)
    assert outcome.run.fired == [1]
    assert outcome.notes == ()
    assert tuple(outcome.run.dead) == row.dead
    if row.finding:
        assert outcome.findings[0].name == row.finding
    else:  # a clean end: the survivor knows whom it has lost
        assert outcome.verdict is Verdict.PASS
        assert outcome.run.peers_lost == [0]
        assert outcome.run.results[1] is None


@pytest.mark.parametrize("program", [meets, hungry, PATIENT], ids=lambda one: one.name)
def test_without_a_fault_all_is_well(program):
    plan = Plan(scenario=program.name, params=program.params(), ranks=2)
    natural = 1 if program is PATIENT else None
    outcome = run(plan, "processes", scenario=program, natural=natural, limits=LIMITS)
    assert outcome.verdict is Verdict.PASS


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_the_simulated_fabric_refuses_it_in_one_line(row):
    told = f"{row.fault.tag()} hits a real process; it needs fabric processes"
    with pytest.raises(PlanError, match=told):
        run(plan_of(row), scenario=row.program)


def test_a_hunt_refuses_it_in_one_line():
    with pytest.raises(UsageError, match="hunts are simulated"):
        fault_type("killed")


def test_an_end_nobody_asked_for_is_a_finding_with_its_signal():
    @scenario(reference=nobody_alone, ranks=(2, 4))
    def falls(rank):
        rank.barrier()
        if rank.index == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        rank.barrier()
        return rank.size

    plan = Plan(scenario="falls", params=falls.params(), ranks=3)
    outcome = run(plan, "processes", scenario=falls)
    (found,) = outcome.findings
    assert found.name == "exceptions/rank_exited"
    assert found.rank == 1
    assert "killed by SIGSEGV" in found.message
    assert outcome.run.failures[0].error.code == -signal.SIGSEGV
    assert "in falls" in outcome.run.printed[1], "its faulthandler's stack is kept"
    assert sorted(outcome.run.peers_lost) == [0, 2]


def test_survivors_may_catch_the_loss():
    @scenario(reference=lambda size: [size] * size, ranks=(2, 4))
    def carries_on(rank):
        try:
            rank.barrier()
            rank.barrier()
        except PeerLost as lost:
            return rank.size if lost.rank == 1 else -1
        return rank.size

    plan = Plan(
        scenario="carries_on", params=carries_on.params(), ranks=2, faults=(Killed(rank=1, nth=1),)
    )
    outcome = run(plan, "processes", scenario=carries_on)
    assert outcome.verdict is Verdict.PASS
    assert outcome.run.results == [[2], None]
