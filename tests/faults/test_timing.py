"""Timing faults: each is lowered to deviations, and those change the outcome of a racy program."""

from dataclasses import dataclass

import pytest
import torch

from faults.timing import LateNotify, LatePut, Pause, Preemption, SlowRank
from harness import Fault, Hold, Plan, Preempt, Scenario, Verdict, registry, run, scenario, values
from harness.run import lowered

N = 4


@scenario(reference=lambda size: [values(1, N)] + [None] * (size - 1))
def unquiet(rank):
    """Rank 1 puts to rank 0, whose sync completes nothing."""
    data = rank.window("data", N, torch.float32)
    if rank.index == 1:
        rank.put(data, 0, values(1, N))
    rank.sync()
    return rank.load(data, 0, N) if rank.index == 0 else None


@scenario(reference=lambda size: [torch.tensor([1], dtype=torch.int32)] + [None] * (size - 1))
def unawaited(rank):
    """Rank 1 notifies rank 0, which reads the cell after a sync instead of waiting."""
    cells = rank.window("cells", 1, torch.int32)
    if rank.index == 1:
        rank.notify(cells, 0, 0, 1)
    rank.sync()
    return rank.load(cells, 0, 1) if rank.index == 0 else None


@scenario(reference=lambda size: [values(1, N)] + [None] * (size - 1))
def unordered(rank):
    """Rank 0 reads what rank 1 stores, with nothing between them."""
    data = rank.window("data", N, torch.float32)
    if rank.index == 1:
        rank.store(data, values(1, N))
    return rank.remote_load(data, 1, 0, N) if rank.index == 0 else None


@scenario(reference=lambda size: [None] * size)
def silent(rank):
    """No one-sided operation."""
    rank.sync()


@dataclass(frozen=True)
class Row:
    """A fault, a program in which it shows, and the deviations that it stands for."""

    fault: Fault
    program: Scenario
    expects: str
    kind: type


ROWS = [
    Row(LatePut(rank=1), unquiet, "integrity/unwritten_memory", Hold),
    Row(LateNotify(rank=1), unawaited, "integrity/stale_value", Hold),
    Row(SlowRank(rank=1), unordered, "integrity/unwritten_memory", Preempt),
    Row(Pause(rank=1, nth=2), unordered, "integrity/unwritten_memory", Preempt),
    Row(Preemption(rank=1, nth=2), unordered, "integrity/unwritten_memory", Preempt),
]


def plan_of(program, *faults):
    return Plan(scenario=program.name, params=program.params(), ranks=2, faults=faults)


def title(row):
    return row.fault.tag()


def test_every_timing_fault_has_a_row():
    timing = {name for name, fault in registry.faults().items() if fault.lowers}
    assert {row.fault.tag() for row in ROWS} == timing
    assert all(row.fault.family == "environment" for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_is_lowered_to_deviations(row):
    plan = lowered(plan_of(row.program, row.fault), row.program)
    assert plan.faults == ()
    assert plan.schedule
    assert {type(deviation) for deviation in plan.schedule} == {row.kind}


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_changes_the_outcome(row):
    without = run(plan_of(row.program), scenario=row.program)
    assert without.verdict is Verdict.PASS, without.findings
    outcome = run(plan_of(row.program, row.fault), scenario=row.program)
    assert row.expects in [finding.name for finding in outcome.findings]
    again = run(outcome.plan, scenario=row.program)
    assert again.run.identity() == outcome.run.identity()


@pytest.mark.parametrize("fault", [LatePut(rank=1), LateNotify(rank=1), LatePut(rank=1, nth=9)])
def test_stands_for_nothing_where_nothing_is_issued(fault):
    assert lowered(plan_of(silent, fault), silent) == plan_of(silent)


@pytest.mark.parametrize("until", [1, 3])
def test_a_put_is_late_by_a_number_of_events(until):
    plan = lowered(plan_of(unquiet, LatePut(rank=1, until=until)), unquiet)
    assert plan.schedule == (Hold(0, until),)
