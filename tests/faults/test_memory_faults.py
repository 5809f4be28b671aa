"""Every fault of a store's client fires, and leads where the scenarios' menu says."""

from dataclasses import dataclass

import pytest

from faults import memory
from harness import EVERY, Fault, Plan, Verdict, registry, run
from scenarios.store import round_trip, shards
from scenarios.store.menu import MENU


@dataclass(frozen=True)
class Row:
    """A fault in a scenario, and what it must lead to; None: nothing, and another run."""

    fault: Fault
    expects: str | None
    program: object = round_trip
    params: tuple = ()


# A rank of the round trip dumps and gives that up, dumps, loads, commits, loads, opens again and loads.
ROWS = [
    Row(memory.MisalignedBuffer(), None),
    Row(memory.MisalignedBuffer(nth=1), None, params=(("direct", True),)),
    Row(memory.NonContiguousBuffer(), "store/refused_call"),
    Row(memory.NonContiguousBuffer(nth=1), "store/refused_call"),
    Row(memory.SmallBuffer(nth=1), "store/refused_call"),
    Row(memory.WrongBufferDtype(nth=1), "store/refused_call"),
    Row(memory.WrongDevice(), "store/refused_call"),
    Row(memory.ReusedBuffer(nth=2), "store/silent_corruption"),
    Row(memory.ReusedBuffer(nth=1), "store/silent_corruption"),
    Row(memory.WrongShard(), "store/refused_call"),
    Row(memory.WrongShard(nth=2), "store/silent_corruption", shards),
    Row(memory.DuplicatedDump(), None),
    Row(memory.MissingTaskWait(nth=2), "store/silent_corruption"),
    Row(memory.WrongIdLength(), "store/refused_call"),
    Row(memory.DuplicateId(nth=1), "store/refused_call"),
    Row(memory.DuplicateId(nth=4), "store/silent_corruption"),
    Row(memory.EmptyIds(nth=1), "store/refused_call"),
    Row(memory.HashSeed(rank=EVERY, nth=EVERY), "store/lost_block"),
]


def title(row):
    return f"{row.fault.tag()}-{row.fault.nth}-{row.program.__name__.rpartition('.')[2]}"


def outcome_of(row, *, faulty=True):
    program = row.program.scenario
    params = program.params(**dict(row.params))
    faults = (row.fault,) if faulty else ()
    return run(Plan(scenario=program.name, params=params, ranks=2, faults=faults), scenario=program)


def test_every_fault_of_a_client_has_a_row_and_a_place_in_the_menu():
    registered = {
        name for name, fault in registry.faults().items() if fault.__module__ == memory.__name__
    }
    assert {row.fault.tag() for row in ROWS} == registered == set(MENU)
    assert len(registered) == len(memory.__all__)
    assert all(registry.faults()[name].family == "bug" for name in registered)


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_fires_and_changes_the_outcome(row):
    without = outcome_of(row, faulty=False)
    assert without.verdict is Verdict.PASS, without.findings
    outcome = outcome_of(row)
    assert outcome.run.fired[0] >= 1
    names = [finding.name for finding in outcome.findings]
    if row.expects is None:
        assert (names, outcome.verdict) == ([], Verdict.PASS)
        assert outcome.run.identity() != without.run.identity()
    else:
        assert row.expects in names


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_the_identity_of_a_faulty_run_repeats(row):
    first, second = outcome_of(row), outcome_of(row)
    assert first.run.identity() == second.run.identity()
    assert [f.identity for f in first.findings] == [f.identity for f in second.findings]
