"""Stores whose power is cut, or that run out of room: what is promised holds, what is broken is found."""

import importlib.util
import sys
from pathlib import Path

import pytest

from harness import Plan, PowerCut, registry, run
from harness.hunt import Order, hunt
from scenarios.store.adapters import black_box
from scenarios.store.adapters.embedded import Embedded, EmbeddedFlushed, EmbeddedUnsynced
from scenarios.store.adapters.embedded_ends import OPERATIONS_MAX
from scenarios.store.adapters.lmdb_store import Lmdb
from scenarios.store.adapters.rocksdict_store import Rocksdict

FILE = Path(__file__).with_name("stores_of_promises.py")
spec = importlib.util.spec_from_file_location("stores_of_promises", FILE)
promises = importlib.util.module_from_spec(spec)
sys.modules["stores_of_promises"] = promises
spec.loader.exec_module(promises)

PLANS = 3
PLANS_TO_FIND = 20
needs_power_cut = pytest.mark.skipif(bool(PowerCut.unavailable()), reason=PowerCut.unavailable())


def finding(adapter, name, plans):
    scenario = black_box(adapter)[name]
    if scenario.missing:
        pytest.skip(scenario.missing)
    return hunt(Order(scenario, 3, plans_max=plans)).finding


@needs_power_cut
@pytest.mark.parametrize("adapter", [
    Embedded, EmbeddedFlushed, EmbeddedUnsynced, Lmdb, Rocksdict, promises.Synced, promises.Unsynced,
])
def test_what_is_promised_holds_after_a_power_cut(adapter):
    assert finding(adapter, "power_cut", PLANS) is None


@needs_power_cut
@pytest.mark.parametrize(("adapter", "kind"), [
    (promises.BoldUnsynced, "lost_block"),
    (promises.BoldEmbedded, "lost_block"),
    (promises.Torn, "silent_corruption"),
    (promises.CannotOpenAgain, "unexpected_error"),
])
def test_a_promise_that_is_not_kept_is_found(adapter, kind):
    found = finding(adapter, "power_cut", PLANS_TO_FIND)
    assert found.name == f"store/{kind}"
    assert found.sites[-1].operation == "power cut"


def ends(name, at, *, log_flushed=False):
    """Run one plan: the findings, and whether the end came."""
    scenario = registry.find(f"store.embedded_{name}")
    params = scenario.params(at=at, log_flushed=log_flushed)
    outcome = run(Plan(scenario=scenario.name, params=params, ranks=1), scenario=scenario)
    steps = outcome.run.observed.steps
    return outcome.findings, any(one.kind == "killed" for step in steps for one in step.statuses)


@pytest.mark.parametrize(("name", "every", "log_flushed"), [
    ("killed_at", 3, False),
    pytest.param("cut_at", 3, False, marks=needs_power_cut),
    pytest.param("flushed_cut_at", 7, False, marks=needs_power_cut),
    pytest.param("unsynced_cut_at", 7, True, marks=needs_power_cut),
    pytest.param("killed_at", 1, False, marks=pytest.mark.nightly),
    *[
        pytest.param(name, 1, flushed, marks=[needs_power_cut, pytest.mark.nightly])
        for name in ("cut_at", "flushed_cut_at", "unsynced_cut_at") for flushed in (False, True)
    ],
])
def test_the_embedded_store_ended_at_its_operations(name, every, log_flushed):
    for at in range(0, OPERATIONS_MAX + 1, every):
        findings, ended = ends(name, at, log_flushed=log_flushed)
        assert findings == ()
        if not ended:
            break
    assert 8 < at < OPERATIONS_MAX


@pytest.mark.parametrize("adapter", [Embedded, promises.Synced, Lmdb])
def test_a_right_store_survives_a_shortage(adapter):
    assert finding(adapter, "shortage", PLANS) is None


@pytest.mark.parametrize(("adapter", "kind"), [
    (promises.KeepsWhatFailed, "silent_corruption"),
    (promises.NeverAgain, "lost_block"),
    (promises.SaysNothing, "silent_corruption"),
])
def test_a_store_that_does_not_recover_is_found(adapter, kind):
    assert finding(adapter, "shortage", PLANS_TO_FIND).name == f"store/{kind}"


def test_an_error_by_accident_is_never_right():
    found = finding(promises.Slips, "outside_damage", PLANS_TO_FIND)
    assert found.name == "store/unexpected_error"
    assert "KeyError" in found.message


def test_an_index_in_memory_may_be_declared():
    names = black_box(promises.InMemory)
    assert "restart" not in names
    for name in ("round_trip", "partial_batch", "outside_damage"):
        assert finding(promises.InMemory, name, PLANS) is None
