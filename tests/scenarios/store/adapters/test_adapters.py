"""The adapters of other people's stores: lmdb where it is installed, UCM's two interface generations on a
stand-in package (stand_in/, written here) whose scenarios find what its stores do not promise."""

import importlib.util
import sys
from pathlib import Path

import pytest

from harness import Plan, run
from harness.hunt import Order, hunt
from scenarios.store.adapters import black_box
from scenarios.store.adapters.lmdb_store import Lmdb
from scenarios.store.adapters.ucm import Ucm, UcmFirst

spec = importlib.util.spec_from_file_location("bold_ucm", Path(__file__).with_name("bold_ucm.py"))
bold_ucm = importlib.util.module_from_spec(spec)
sys.modules["bold_ucm"] = bold_ucm
spec.loader.exec_module(bold_ucm)

STAND_IN = str(Path(__file__).with_name("stand_in"))
PLANS = 3
with_lmdb = pytest.mark.skipif(
    importlib.util.find_spec("lmdb") is None, reason="lmdb is not installed: pip install '.[stores]'"
)


@pytest.fixture
def ucm(monkeypatch):
    """Subject processes import the stand-in, unless the real package is there."""
    if importlib.util.find_spec("ucm") is None:
        monkeypatch.syspath_prepend(STAND_IN)


def hunted(adapter, name):
    result = hunt(Order(black_box(adapter)[name], 3, plans_max=PLANS))
    assert result.statistics.notes == {}
    return result.finding


@with_lmdb
@pytest.mark.parametrize("name", black_box(Lmdb))
def test_lmdb_keeps_its_promises(name):
    assert hunted(Lmdb, name) is None


@pytest.mark.usefixtures("ucm")
@pytest.mark.parametrize("name", black_box(Ucm))
def test_the_second_generation_keeps_its_promises(name):
    assert hunted(Ucm, name) is None


@pytest.mark.usefixtures("ucm")
@pytest.mark.parametrize("name", black_box(UcmFirst))
def test_the_first_generation_keeps_its_promises(name):
    assert hunted(UcmFirst, name) is None


@pytest.mark.usefixtures("ucm")
@pytest.mark.parametrize(
    ("adapter", "name", "kind"),
    [
        (bold_ucm.BoldUcm, "outside_damage", "silent_corruption"),
        (bold_ucm.BoldUcm, "lookup_order", "lost_block"),
        (bold_ucm.BoldUcmFirst, "outside_damage", "silent_corruption"),
        (bold_ucm.Uncommitted, "round_trip", "lost_block"),
    ],
)
def test_what_ucm_does_not_promise_would_be_found(adapter, name, kind):
    assert hunted(adapter, name).name == f"store/{kind}"


@pytest.mark.usefixtures("ucm")
def test_a_failed_task_is_an_error_and_no_miss():
    scenario = black_box(Ucm)["missing_blocks"]
    outcome = run(Plan(scenario="x", params=scenario.params(), ranks=1), scenario=scenario)
    step = next(step for step in outcome.run.observed.steps if step.operation == "load")
    assert [str(status) for status in step.statuses] == ["error (RuntimeError: -1)"]


@pytest.mark.usefixtures("ucm")
def test_a_block_that_is_there_is_refused_with_its_code():
    scenario = black_box(UcmFirst)["duplicates"]
    outcome = run(Plan(scenario="x", params=scenario.params(), ranks=1), scenario=scenario)
    steps = [step for step in outcome.run.observed.steps if step.operation == "dump"]
    assert [str(status) for status in steps[1].statuses] == ["error (create: -50003)"] * 2


def test_without_ucm_the_error_says_so():
    if importlib.util.find_spec("ucm") is not None:
        pytest.skip("the real ucm package is installed")
    finding = hunted(Ucm, "round_trip")
    assert finding.name == "store/unexpected_error"
    assert "ModuleNotFoundError: No module named 'ucm'" in finding.message
