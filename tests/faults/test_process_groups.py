"""Faults of real process groups: each fires in a rank's own process, and changes what becomes of it."""

import json
from typing import NamedTuple

import pytest

from faults.process_groups import (
    CorruptInput,
    CorruptResult,
    DroppedCall,
    KilledInCall,
    LateCall,
    SwappedCalls,
    WrongEnvironment,
)
from faults.processes import Killed, NativeAbort
from harness import EVERY, Fault, Limits, Operation, registry, run_real
from scenarios.process_groups.gloo import STEPS

PATIENT = Limits(operation=30, plan=100)
HURRIED = Limits(operation=2, plan=100)  # where a time-out is what happens


def ran(*faults, calls=("all_reduce", "all_reduce"), limits=PATIENT, deferred=False, ranks=2):
    told = {
        "calls": calls, "dtype": "int32", "numel": 4, "deferred": deferred, "mistake": "", "at": 0,
        "victim": 0,
    }
    return run_real(STEPS, [json.dumps(told)], ranks=ranks, faults=faults, limits=limits)


class Row(NamedTuple):
    """codes: how ranks 0 and 1 may end. same: each prints what it does without it."""

    fault: Fault
    codes: tuple[int | tuple[int, ...], int]
    same: bool = False
    deferred: bool = False
    limits: Limits = PATIENT


ROWS = [
    Row(LateCall(rank=1, milliseconds=200), (0, 0), same=True),
    Row(LateCall(rank=1, milliseconds=6000), (1, 1), limits=HURRIED),
    Row(DroppedCall(rank=1, nth=1), (1, 0)),
    Row(SwappedCalls(rank=1), (0, 0), deferred=True),
    Row(CorruptInput(rank=1, element=2), (0, 0)),
    Row(CorruptResult(rank=1, bit=0), (0, 0)),
    Row(KilledInCall(rank=1), ((0, 1), -9)),  # what was to be sent may have been
    Row(WrongEnvironment(rank=1, name="WORLD_SIZE", value="1"), (1, 1), limits=HURRIED),
    Row(WrongEnvironment(rank=1, name="RANK", value=""), (1, 1), limits=HURRIED),
    Row(Killed(rank=0, nth=1), (-9, 1)),
    Row(NativeAbort(rank=1, nth=1), (1, -6)),
]


@pytest.fixture(scope="module")
def quiet():
    outcome = ran()
    assert outcome.first is None
    return [one.printed for one in outcome.ranks]


def test_every_fault_of_the_family_has_a_row():
    registered = {n for n, f in registry.faults().items() if f.__module__ == "faults.process_groups"}
    assert registered <= {row.fault.tag() for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.fault.tag()}-{row.codes}")
def test_fires_and_changes_the_outcome(row, quiet):
    outcome = ran(row.fault, deferred=row.deferred, limits=row.limits)
    assert outcome.fired == (1,)
    assert outcome.struck == {row.fault.rank}
    for one, codes in zip(outcome.ranks, row.codes, strict=True):
        assert one.code in (codes if isinstance(codes, tuple) else (codes,)), str(outcome)
    assert ([one.printed for one in outcome.ranks] == quiet) is row.same
    if row.codes[1] < 0:
        assert outcome.first == 1  # the one that was hit, not the one that felt it


def test_what_is_right_in_time_passes_and_what_is_wrong_in_silence_does_not(quiet):
    assert ran(LateCall(rank=1, milliseconds=100)).verdict(quiet).name == "PASS"
    assert ran(KilledInCall(rank=1)).verdict(quiet).name == "PASS"
    (found,) = ran(CorruptInput(rank=1)).findings(quiet)
    assert found.name == "process_group/silence"
    assert found.rank == 0
    assert "corrupt_input" in found.identity


def test_a_fault_that_never_fires_proves_nothing(quiet):
    outcome = ran(LateCall(rank=1, nth=9))
    assert outcome.fired == (0,)
    assert outcome.verdict(quiet).name == "UNKNOWN"


def test_a_kind_of_call_counts_by_itself():
    calls = ("all_reduce", "barrier", "all_reduce")
    outcome = ran(DroppedCall(rank=1, call="barrier"), calls=calls, limits=HURRIED)
    assert outcome.fired == (1,)
    assert [call.kind for call in outcome.ranks[1].calls][:2] == ["all_reduce", "barrier"]


@pytest.mark.parametrize(("fault", "kinds"), [
    (CorruptInput(), {"recv", "barrier", "monitored_barrier"}),
    (CorruptResult(), {"send", "barrier", "monitored_barrier"}),
    (SwappedCalls(), {"monitored_barrier"}),
    (LateCall(), set()),
])
def test_faults_match_what_they_would_change(fault, kinds):
    def matches(kind, rank=0):
        return fault.__class__(rank=rank).matches(Operation(kind, 0, 2, {}))

    assert {kind for kind in ("all_reduce", "send", "recv", "barrier", "monitored_barrier")
            if not matches(kind)} == kinds
    assert not matches("all_reduce", EVERY)
    assert not matches("put")
