"""The black-box scenarios are silent on right stores and name what is wrong with the others."""

import importlib.util
import sys
from pathlib import Path

import msgspec
import pytest

import harness
from harness import Plan, UsageError, Verdict, plans, run
from harness.hunt import Order, hunt
from harness.strategy import drawn
from scenarios.store.adapters import Adapter, black_box
from scenarios.store.adapters.embedded import Embedded

FILE = Path(__file__).with_name("file_stores.py")
spec = importlib.util.spec_from_file_location("file_stores", FILE)
file_stores = importlib.util.module_from_spec(spec)
sys.modules["file_stores"] = file_stores
spec.loader.exec_module(file_stores)

NAMES = (
    "round_trip", "restart", "outside_damage", "odd_sizes", "concurrent_clients", "missing_blocks",
    "duplicates", "empty_lists", "partial_batch", "lookup_order",
)
PLANS = 4
PLANS_TO_FIND = 12

# Each wrong store with a scenario that shows it and the finding.
WRONG = {
    "IndexInMemory": ("restart", "lost_block"),
    "WrittenAtClose": ("restart", "lost_block"),
    "Unverified": ("outside_damage", "silent_corruption"),
    "DigestOfDataOnly": ("outside_damage", "silent_corruption"),
    "Rounded": ("odd_sizes", "silent_corruption"),
    "WholeSectors": ("odd_sizes", "silent_corruption"),
    "OneTemporaryName": ("concurrent_clients", "unexpected_error"),
    "ShortKeys": ("missing_blocks", "phantom_block"),
    "MissRaises": ("partial_batch", "lost_block"),
    "LookupStops": ("lookup_order", "lost_block"),
    "EmptyRefused": ("empty_lists", "unexpected_error"),
    "SecondDumpFails": ("duplicates", "lost_block"),
    "CommitIgnored": ("partial_batch", "uncommitted_visible"),
    "Hangs": ("round_trip", "hang"),
    "Crashes": ("round_trip", "crash"),
    "Fails": ("round_trip", "unexpected_error"),
    "SaysNothing": ("round_trip", "misuse"),
    "CannotBeMade": ("empty_lists", "misuse"),
    "OpenFails": ("round_trip", "unexpected_error"),
}


def found(store, name, **promises):
    """The finding of a hunt through one scenario, or None."""
    adapter = getattr(file_stores, store)
    for promise, value in promises.items():
        setattr(adapter, promise, value)
    scenario = black_box(adapter)[name]
    result = hunt(Order(scenario, 1, plans_max=PLANS_TO_FIND))
    assert result.statistics.notes == {}
    return result.finding


@pytest.mark.parametrize("store", ["Right", "Committing"])
@pytest.mark.parametrize("name", NAMES)
def test_a_right_store_has_no_finding(store, name):
    result = hunt(Order(black_box(getattr(file_stores, store))[name], 1, plans_max=PLANS))
    assert result.finding is None, result.finding
    assert result.statistics.notes == {}


@pytest.mark.parametrize("name", ["odd_sizes", "restart", "concurrent_clients"])
def test_the_embedded_store_with_direct_io_has_no_finding(name):
    result = hunt(Order(black_box(file_stores.EmbeddedDirect)[name], 2, plans_max=PLANS))
    if result.finding is not None and "StorageUnusable" in result.finding.message:
        pytest.skip(f"TMPDIR has no direct I/O: {result.finding.message}")
    assert result.finding is None, result.finding


@pytest.mark.parametrize("name", NAMES)
def test_the_embedded_store_has_no_finding(name):
    result = hunt(Order(black_box(Embedded)[name], 2, plans_max=PLANS))
    assert result.finding is None, result.finding
    assert result.statistics.notes == {}


@pytest.mark.parametrize("store", WRONG)
def test_each_wrong_store_is_named(store):
    name, kind = WRONG[store]
    finding = found(store, name)
    assert finding is not None
    assert finding.name == f"store/{kind}"
    assert finding.cause
    assert finding.remedy
    assert "\n" not in finding.message


def test_what_is_wrong_with_the_bytes_is_said():
    finding = found("Rounded", "odd_sizes")
    assert "shifted: its own bytes come 1 bytes too late" in finding.message
    assert finding.evidence[1] == "pointer % 512: source 1, destination 1"
    assert "bounce buffer" in finding.remedy
    finding = found("WholeSectors", "odd_sizes")
    assert "those of the poison of the destination" in finding.message
    assert "nothing was read into the destination" in finding.cause
    finding = found("Unverified", "outside_damage")
    assert finding.message.endswith("a hit with wrong bytes: one bit differs: bit 4 of byte 3682")
    finding = found("DigestOfDataOnly", "outside_damage")
    assert "bytes are those of block" in finding.message
    assert "store the id in the file" in finding.remedy


def test_a_hang_and_a_crash_say_how():
    assert "no answer within 0.5 s" in found("Hangs", "round_trip").message
    assert "killed by SIGKILL" in found("Crashes", "round_trip").message
    assert "OSError: [Errno 5] Input/output error" in found("Fails", "round_trip").message
    assert "PermissionError" in found("OpenFails", "round_trip").message
    assert "status 0 is None; allowed True, False or a text" in found("SaysNothing", "round_trip").message
    assert "cannot be made: TypeError" in found("CannotBeMade", "round_trip").message


def test_a_kill_in_a_dump_shows_a_store_that_writes_in_place():
    scenario = black_box(file_stores.TornInPlace)["restart"]
    plan = Plan(scenario="x", params=scenario.params(end="kill_in_dump", after=20), ranks=1)
    outcomes = (run(plan, scenario=scenario) for _ in range(20))  # the kill may come too early
    finding = next(outcome.findings[0] for outcome in outcomes if outcome.findings)
    assert finding.name == "store/silent_corruption"
    assert "poison of the destination" in finding.message
    assert finding.evidence[4] == "call 2: client 0 dump [2, 3]: killed"


def test_what_is_not_promised_is_not_held_against_a_store():
    class Careless(file_stores.Unverified):
        survives_damage = False
        several_processes = False

    assert set(NAMES) - set(black_box(Careless)) == {"outside_damage", "concurrent_clients"}
    assert found("WrittenAtClose", "restart", survives_kill=False) is None
    assert found("LookupStops", "lookup_order", lookup_stops_at_a_miss=True) is None
    assert found("WholeSectors", "odd_sizes", block_bytes=1024, alignment=512) is None


def test_fixed_lengths_and_alignment_are_kept():
    class Direct(file_stores.Right):
        block_bytes = 1024
        alignment = 512

    scenario = black_box(file_stores.Right)["odd_sizes"]
    outcome = run(Plan(scenario="x", params=scenario.params(), ranks=1), scenario=scenario)
    assert outcome.run.observed.sizes == (511, 1, 4097)
    assert outcome.run.observed.steps[2].statuses[0].at == (1, 1)
    scenario = black_box(Direct)["odd_sizes"]
    outcome = run(Plan(scenario="x", params=scenario.params(source=513), ranks=1), scenario=scenario)
    assert outcome.run.observed.sizes == (1024, 1024, 1024)


@pytest.mark.parametrize("name", NAMES)
def test_plans_are_drawn_within_the_bounds(name):
    scenario = black_box(file_stores.Right)[name]
    strategy = plans(scenario, faults=False, schedule=False)
    for plan in drawn(strategy, 30, name):
        assert msgspec.convert(msgspec.to_builtins(plan.params), scenario.params) == plan.params
        assert plan.ranks == 1


def test_the_same_plan_gives_the_same_history():
    scenario = black_box(file_stores.Right)["concurrent_clients"]
    plan = Plan(scenario="x", params=scenario.params(), ranks=1)
    first, second = (run(plan, scenario=scenario) for _ in range(2))
    assert first.verdict is Verdict.PASS
    assert list(map(str, first.run.observed.steps)) == list(map(str, second.run.observed.steps))
    assert len(first.run.observed.steps) == 9


def test_a_property_takes_a_black_box_scenario():
    lengths = []

    @harness.property(black_box(file_stores.Right)["restart"], max_examples=3)
    def found_again(outcome):
        steps = list(map(str, outcome.run.observed.steps))
        assert steps[0] == "client 0 open: ok"
        assert steps[-1].endswith("close: ok")
        lengths.append(len(steps))

    found_again()
    assert lengths
    assert min(lengths) >= 7  # two clients: the one that ends, and the one that looks for what it left

    @harness.property(black_box(file_stores.IndexInMemory)["restart"], max_examples=3)
    def lost(outcome):
        pass

    with pytest.raises(AssertionError, match="FAIL store/lost_block"):
        lost()


class NoGet(Adapter):
    def open(self, folder):
        pass

    def put(self, block_id, source):
        pass

    def has(self, block_id):
        return True


@pytest.mark.parametrize(
    ("adapter", "text"),
    [
        (dict, "black_box: given <class 'dict'>; allowed is a subclass of Adapter"),
        (NoGet, "NoGet: one of the methods get and load is missing"),
        (Adapter, r"Adapter: the method open\(folder\) is missing"),
        (type("Odd", (NoGet,), {"block_bytes": -1, "get": id}), "Odd: block_bytes: given -1"),
        (type("Odd", (NoGet,), {"alignment": 0, "get": id}), "Odd: alignment: given 0"),
        (type("Odd", (NoGet,), {"alignment": 8, "block_bytes": 4, "get": id}), "alignment = 8"),
        (type("Odd", (NoGet,), {"deadline": "5", "get": id}), "Odd: deadline: given '5'"),
    ],
)
def test_a_class_that_cannot_be_driven_is_one_clear_line(adapter, text):
    with pytest.raises(UsageError, match=text):
        black_box(adapter)
