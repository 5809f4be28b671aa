"""The store's histories as operations of a model; the mutant that only a sequence of answers shows."""

from types import SimpleNamespace

import pytest

from harness import Plan, Verdict, registry, run
from harness.checkers.linearizable import judge_history
from harness.hunt import Order, Target, hunt
from scenarios.store.block_model import LINEARIZABLE, BlockModel, block_operations
from scenarios.store.history import Call, History
from systems.store.errors import CANCELLED, NOT_FOUND, OK, TIMEOUT

SCENARIO = registry.find("store.watching")
JUDGED = (
    "concurrent_clients", "eviction", "prefix_reuse", "restart", "round_trip", "shards", "watching",
)


def call(kind, began, ended, code, rank=0, block=0, **known):
    flags = (known.pop("flag", True),) if kind == "commit" else ()
    codes = () if code is None else (code,)
    return Call(
        rank, kind, (block,), codes=codes, flags=flags, opened=1, began=began, ended=ended, **known
    )


def legal(*calls, **known):
    """Whether the calls could have happened in one order."""
    history = History(None, calls=list(calls), **known)
    run = SimpleNamespace(observed={"history": history}, faults=(), fired=[])
    found = judge_history(block_operations(run), BlockModel())
    assert all(judged.legal is False for judged in found.values())
    return not found


DUMPED = call("dump", 0, 10, OK)
COMMITTED = call("commit", 11, 20, OK)


def test_a_block_is_seen_from_its_commit_on():
    assert legal(DUMPED, COMMITTED, call("lookup", 21, 22, 1), call("load", 23, 24, OK, rank=1))
    assert legal(DUMPED, COMMITTED, call("lookup", 12, 13, 0), call("lookup", 14, 15, 1))
    assert not legal(DUMPED, COMMITTED, call("lookup", 12, 13, 1), call("lookup", 14, 15, 0))
    assert not legal(DUMPED, COMMITTED, call("lookup", 21, 22, 0))
    assert not legal(DUMPED, call("lookup", 12, 13, 1))


def test_only_the_store_that_dumped_it_loads_what_is_not_committed():
    assert legal(DUMPED, call("load", 12, 13, OK))
    assert not legal(DUMPED, call("load", 12, 13, OK, rank=1))
    dropped = call("commit", 11, 20, OK, flag=False)
    assert not legal(DUMPED, dropped, call("load", 21, 22, OK))
    assert legal(DUMPED, dropped, call("load", 21, 22, NOT_FOUND), call("lookup", 23, 24, 0))


@pytest.mark.parametrize(("code", "ended"), [(CANCELLED, 20), (TIMEOUT, 20), (None, -1)])
def test_a_commit_that_failed_or_never_ended_may_have_happened(code, ended):
    doubtful = call("commit", 11, ended, code)
    assert legal(DUMPED, doubtful, call("lookup", 30, 31, 0))
    assert legal(DUMPED, doubtful, call("lookup", 30, 31, 1))
    assert not legal(DUMPED, doubtful, call("lookup", 30, 31, 1), call("lookup", 32, 33, 0))


def test_all_shards_make_a_block():
    other = call("dump", 0, 10, OK, rank=1, shard=1)
    half = (DUMPED, other, COMMITTED)
    assert legal(*half, call("lookup", 21, 22, 0), shards=2)
    assert not legal(*half, call("lookup", 21, 22, 1), shards=2)
    whole = (*half, call("commit", 21, 30, OK, rank=1))
    assert legal(*whole, call("lookup", 31, 32, 1), call("load", 33, 34, OK, rank=2), shards=2)


def test_an_evicted_block_stays_away_until_it_is_committed_again():
    gone = (DUMPED, COMMITTED, call("lookup", 21, 22, 0))
    assert legal(*gone, evicts=True)
    assert not legal(*gone, call("lookup", 23, 24, 1), evicts=True)
    assert legal(*gone, call("load", 23, 24, OK, rank=1), evicts=True), "from a cache"
    assert not legal(DUMPED, call("load", 23, 24, OK, rank=1), evicts=True)
    again = (call("dump", 23, 24, OK), call("commit", 25, 26, OK))
    assert legal(*gone, *again, call("lookup", 27, 28, 1), evicts=True)


def test_a_power_cut_may_take_a_block_and_no_other_moment_may():
    lost = (DUMPED, COMMITTED, call("lookup", 41, 42, 0))
    assert not legal(*lost)
    assert legal(*lost, cuts=[30])
    assert not legal(*lost, call("lookup", 43, 44, 1), cuts=[30])


@pytest.mark.parametrize("name", JUDGED)
def test_the_scenarios_of_the_store_are_judged(name):
    scenario = registry.find(f"store.{name}")
    assert LINEARIZABLE in scenario.checkers
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=2)
    if name == "restart":
        plan = Plan(scenario=scenario.name, params=scenario.params(power_cut=True), ranks=2)
    outcome = run(plan, scenario=scenario)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    kinds = {op.kind for op in block_operations(outcome.run)}
    assert kinds >= {"dump", "commit", "loaded"}
    assert ("cut" in kinds) == (name == "restart")


def test_a_search_that_is_too_long_makes_the_run_unknown(monkeypatch):
    monkeypatch.setattr(LINEARIZABLE, "_limit", 0)
    outcome = run(Plan(scenario=SCENARIO.name, params=SCENARIO.params(), ranks=1), scenario=SCENARIO)
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.notes == ("checker linearizable: block 0: no verdict within 0 steps",)


def test_the_watchers_see_the_block_come():
    plan = Plan(scenario=SCENARIO.name, params=SCENARIO.params(), ranks=2)
    calls = run(plan, scenario=SCENARIO).run.observed["history"].calls
    assert {call.codes for call in calls if call.kind == "lookup"} == {(0,), (1,)}


def test_a_block_that_flickers_is_seen_by_this_checker_alone():
    found = hunt(Order(SCENARIO, 1, bug="renamed_twice", ranks=(1, 1), plans_max=60))
    assert found.finding.name == "linearizable/not_linearizable"
    hit, miss = found.finding.evidence
    assert hit.endswith("1 (hit)")
    assert miss.endswith("0 (miss)")
    without = Target(without="linearizable")
    deaf = hunt(Order(SCENARIO, 1, bug="renamed_twice", ranks=(1, 1), plans_max=60, until=without))
    assert deaf.finding is None
    assert deaf.statistics.passed_over["linearizable/not_linearizable"]
