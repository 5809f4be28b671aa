"""A store that loses power: no crash breaks a promise, and every mutant breaks one."""

import itertools

import pytest

from harness import Crash, Plan, Verdict, registry, run
from harness.crash_states import CrashStates
from harness.each_place import crashes, each_crash
from harness.errors import PlanError, UsageError
from harness.hunt import Order, Target, hunt
from harness.minimise import minimise
from harness.plan import decode_wire, encode, from_wire
from harness.report.text import drawn
from scenarios.store import crash
from scenarios.store.crash import CALLS, Params, worked, workloads
from scenarios.store.crash_exhaustion import exhausted

SCENARIO = registry.find("store.crash")
DURABILITIES = ("fsync", "flush", "none")
PROFILES = ("posix", "ext4", "nfs")
EVERY = tuple(itertools.product(DURABILITIES, PROFILES))
SEEN_WITHOUT_A_CRASH = ("header_written_again", "removed_before_rename")


def plan_of(params=None, **fields):
    return Plan(scenario=SCENARIO.name, params=params or Params(), ranks=1, **fields)


def outcome_of(*args, **fields):
    return run(plan_of(*args, **fields), scenario=SCENARIO)


@pytest.mark.parametrize(("durability", "profile"), EVERY)
def test_no_crash_in_any_call_and_of_no_recovery_breaks_a_promise(durability, profile):
    """Exhaustive, for every workload of one call."""
    every = (Params(calls=c, durability=durability, profile=profile) for c in workloads(1))
    found = exhausted(every, recoveries=(durability, profile) != ("none", "posix"))
    assert found.workloads == 7
    assert not found.violations, found.violations[:3]
    assert not found.cut
    assert found.tried > found.states > 70


@pytest.mark.parametrize(("durability", "profile"), EVERY)
def test_no_crash_of_three_calls_that_dump_commit_and_evict_breaks_a_promise(durability, profile):
    for calls in (("dump a", "commit true", "evict"), ("dump b", "dump a", "commit true")):
        params = Params(calls=calls, durability=durability, profile=profile, elements=1)
        found = exhausted([params], budget=100)
        assert not found.violations, found.violations[:3]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("durability", "profile"), EVERY)
def test_no_crash_of_any_workload_of_three_calls_breaks_a_promise(durability, profile):
    every = (Params(calls=c, durability=durability, profile=profile) for c in workloads())
    found = exhausted(every)
    assert found.workloads == 1 + 6 + 36 + 216
    assert not found.violations, found.violations[:3]


def test_the_workloads_are_all_sequences_of_the_calls():
    assert len(set(workloads())) == len(list(workloads())) == 259
    assert {call for calls in workloads() for call in calls} == set(CALLS)


def test_the_hunt_in_each_place_tries_every_crash_state_and_those_of_recoveries():
    small = plan_of(Params(calls=("dump a",), elements=1))
    every = list(each_crash(small, SCENARIO))
    disk = worked(small.params).disk
    assert [c for c in every if c.again is None] == list(CrashStates(disk.log))
    assert sum(c.again is not None for c in every) > 100
    found = hunt(Order(SCENARIO, 1, each=True, plans_max=150))
    assert found.finding is None
    assert found.statistics.plans == 150
    assert found.statistics.shares == {"each": 150}


def test_a_bare_hunt_tries_some_crash_states_of_each_parameter_set():
    found = hunt(Order(SCENARIO, 20261130, plans_max=150))
    assert found.finding is None, found.finding
    assert found.statistics.shares["crash_state"] > 100
    assert not found.statistics.notes


@pytest.mark.nightly
@pytest.mark.parametrize("root_seed", [1, 2])
def test_a_bare_hunt_of_the_twin_finds_nothing(root_seed):
    assert hunt(Order(SCENARIO, root_seed, plans_max=1_500)).finding is None


@pytest.mark.parametrize("name", sorted(SCENARIO.mutants))
def test_every_mutant_is_caught_by_what_it_declares(name):
    expected = SCENARIO.mutants[name].expects.split("|")
    found = hunt(Order(SCENARIO, 3, bug=name, plans_max=60))
    assert found.finding is not None
    assert found.finding.name in expected
    if name in SEEN_WITHOUT_A_CRASH:
        return
    crashed = hunt(Order(SCENARIO, 3, bug=name, plans_max=300, until=Target(without="durable")))
    assert crashed.finding is not None, "no crash shows it"
    assert crashed.finding.name in expected
    assert crashed.outcome.plan.crash is not None
    assert crashed.finding.evidence[0].startswith("the crash comes after ")


def test_a_crash_of_the_recovery_shows_what_no_single_crash_does():
    bug = "removed_before_rename"
    params = Params(calls=("dump a", "commit true"), elements=1)
    committed = Crash(len(worked(params).disk.log))
    lost = 0
    for again in crashes(plan_of(params, bug=bug, crash=committed), SCENARIO, 0):
        both = Crash(committed.at, again=again)
        told = outcome_of(params, bug=bug, crash=both).findings
        lost += any(finding.name == "store/lost_block" for finding in told)
        assert outcome_of(params, crash=both).verdict is Verdict.PASS
    assert lost


def test_a_finding_is_shrunk_to_one_lost_effect_and_replays():
    order = Order(
        SCENARIO, 3, bug="parent_not_synced", plans_max=300, until=Target(without="durable")
    )
    found = hunt(order)
    small = minimise(found.outcome, found.finding, SCENARIO, seconds=600.0)
    plan = small.outcome.plan
    assert small.proven, small.why
    assert "a simpler crash" in small.why
    assert plan.params.calls == ("dump a", "commit true")
    assert [line.split(",")[0] for line in small.finding.evidence[1:]] == ["lost: entry 8"]
    assert "mkdir" in small.finding.evidence[1]
    assert repr(plan.crash) in " ".join(drawn(small.outcome))
    again = from_wire(decode_wire(encode(plan)), Params, {})
    assert again == plan
    assert run(again, scenario=SCENARIO).finds(small.finding.identity) is not None
    fixed = outcome_of(plan.params, crash=plan.crash)
    assert fixed.verdict is Verdict.PASS


def test_what_a_crash_leaves_is_checked_and_without_one_nothing_is_recovered():
    outcome = outcome_of(crash=Crash(10_000, tuple(range(100))))
    stage = outcome.run.observed["stage"]
    assert outcome.verdict is Verdict.PASS
    assert stage.before.must == {"a"}
    assert stage.before.may == {"a"}
    assert "acknowledged" not in stage.told[0]
    assert outcome_of().run.observed["stage"].before.may == frozenset()


def test_a_block_that_is_torn_without_any_durability_is_noticed_and_excused():
    params = Params(calls=("dump a", "commit true"), durability="none")
    disk = worked(params).disk
    renamed = next(i for i, entry in enumerate(disk.log) if entry.kind == "rename")
    written = [i for i, entry in enumerate(disk.log) if entry.kind == "write" and entry.length == 800]
    keep = tuple(index for index in range(renamed + 1) if index not in written)
    outcome = outcome_of(params, crash=Crash(renamed + 1, keep))
    assert outcome.verdict is Verdict.PASS
    assert any("lost" in line and "800 bytes" in line for line in outcome.run.observed["stage"].told)


def test_a_scenario_without_a_recovery_refuses_a_crash():
    other = registry.find("store.restart")
    plan = Plan(scenario=other.name, params=other.params(), ranks=1, crash=Crash(1))
    with pytest.raises(PlanError, match=r"\$\.crash: store.restart has no recovery"):
        run(plan, scenario=other)


def test_a_scenario_that_returns_no_disk_says_so(monkeypatch):
    monkeypatch.setattr(crash, "SimulatedDisk", lambda **_: pytest.fail("not reached"))
    silent = type(SCENARIO)(
        name="silent", host=lambda world, params: world.dispatch(crash._nothing, device=0),
        recovery=crash.recovery, params=Params, ranks=(1, 1),
    )
    with pytest.raises(UsageError, match="no SimulatedDisk as `disk`"):
        run(Plan(scenario="silent", params=Params(), ranks=1, crash=Crash(1)), scenario=silent)
