"""The matrix's rows: what counts as caught, what does not, and what each kind of lie looks like."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import msgspec
import pytest

from harness import Fault, registry, run
from harness.corpus import plan_of_token
from harness.matrix import Row, cases, in_order, not_run, percentile95, row_by_name, row_of
from harness.trial import Case, Limits, Trial

LIMITS = Limits(root_seeds=(0, 1), plans_max=12, world_plans=6, mutant_runs=400, fault_runs=400)
UNWRITTEN = "integrity/unwritten_memory"


def load_ring():
    """The module of the systems; its functions must be findable for the mutants to replace them."""
    name = "matrix_ring"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


ring = load_ring()


class Idle(Fault, frozen=True, tag="idle"):
    """Hits every notify and changes nothing, so it never fires."""

    def matches(self, op):
        return op.kind == "notify"

    def rewrite(self, op):
        return op


def row(kind, name, scenario=ring.RIGHT, limits=LIMITS, **bug_faults):
    scenario = dataclasses.replace(scenario, bug_faults=bug_faults)
    return row_of(Case(kind, scenario.name, name), scenario, limits)


def test_a_mutant_that_is_caught_as_declared():
    found = row("mutant", "caught")
    assert (found.status, found.reason) == ("caught", "")
    assert found.found == {UNWRITTEN: 2}
    assert (found.plans, found.median, found.percentile95) == ((2, 2), 2, 2)
    assert (found.missed, found.smallest_ranks) == ((), 1)
    assert (found.shrunk.ranks, found.shrunk.deviations, found.shrunk.proven) == (1, 1, True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("another_kind", "deadlock/cycle does not show in a world of 1"),
        ("too_large", f"{UNWRITTEN} shows in a world of 1, declared is 2"),
        ("no_such_world", f"{UNWRITTEN} does not show in a world of 4, which is larger than 3"),
    ],
)
def test_a_mutant_that_is_caught_otherwise_than_declared(name, reason):
    found = row("mutant", name)
    assert found.status == "misdeclared"
    assert reason in found.reason
    assert found.found == {UNWRITTEN: 2}
    assert found.smallest_ranks == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [("as_good", "nothing shows in 12 plans"), ("never_called", "its code is never called")],
)
def test_a_survivor_says_why(name, reason):
    found = row("mutant", name)
    assert found.status == "survived"
    assert f"missed by 2 of 2 root seeds (0, 1): {reason}" in found.reason
    assert (found.plans, found.median, found.percentile95) == ((13, 13), 13, 13)
    assert (found.found, found.shrunk, found.smallest_ranks) == ({}, None, None)


def test_what_the_twin_shows_as_well_is_not_caught():
    found = row("mutant", "on_top", ring.WRONG)
    assert found.status == "survived"
    assert f"{UNWRITTEN} does not count: its twin shows {UNWRITTEN} under the same plan" in found.reason
    assert found.found == {}


def test_one_root_seed_that_misses_makes_a_survivor(monkeypatch):
    real = Trial.hunted

    def hunted(self, root, **named):
        found = real(self, root, **named)
        return found if root or named else dataclasses.replace(found, finding=None, outcome=None)

    monkeypatch.setattr(Trial, "hunted", hunted)
    found = row("mutant", "caught")
    assert found.status == "survived"
    assert found.reason.startswith("missed by 1 of 2 root seeds (0)")
    assert (found.missed, found.plans, found.found) == ((0,), (13, 2), {UNWRITTEN: 1})


def test_a_fault_that_is_caught_as_declared():
    found = row("fault", "dropped_fence", dropped_fence=f"deadlock/cycle|{UNWRITTEN}")
    assert (found.status, found.found) == ("caught", {UNWRITTEN: 2})
    assert found.fired["dropped_fence"] > 0
    assert (found.smallest_ranks, found.shrunk.ranks) == (1, 1)


def test_a_timing_fault_is_judged_by_the_deviations_that_it_stands_for():
    found = row("fault", "late_put", ring.WRONG, late_put=UNWRITTEN)
    assert (found.status, found.found, found.plans) == ("caught", {UNWRITTEN: 2}, (1, 1))
    found = row("fault", "late_put", late_put=UNWRITTEN)
    assert (found.status, found.found) == ("survived", {})
    assert found.fired["late_put"] > 0


def test_a_fault_that_shows_what_is_not_declared():
    found = row("fault", "dropped_fence", dropped_fence="deadlock/cycle")
    assert (found.status, found.reason) == ("misdeclared", f"{UNWRITTEN}: not declared")


def test_a_fault_that_is_not_caught_survives():
    found = row("fault", "dropped_fence", ring.fenced_twice, dropped_fence=UNWRITTEN)
    assert found.status == "survived"
    assert "nothing shows in 12 plans" in found.reason
    assert found.fired["dropped_fence"] > 0


def test_a_fault_that_never_fires_is_neither_caught_nor_survives(monkeypatch):
    known = {**registry.faults(), "idle": Idle}
    monkeypatch.setattr(registry, "faults", lambda: known)
    found = row("fault", "idle", idle=UNWRITTEN)
    assert found.status == "unknown"
    assert "the fault never fired" in found.reason


def test_a_finding_that_shrinks_to_one_without_the_fault_is_told():
    """The plan that was found is clean without the fault, the smallest one is not."""
    found = row("fault", "duplicated_notify", ring.WRONG, duplicated_notify=UNWRITTEN)
    assert found.status == "misdeclared"
    assert found.reason == f"its smallest plan shows {UNWRITTEN} without the bug as well"


def test_a_fault_with_nothing_to_hit_is_unknown():
    found = row("fault", "skipped_barrier", skipped_barrier="matching/missing_call")
    assert (found.status, found.reason) == (
        "unknown", "skipped_barrier: nothing in right for it to hit"
    )


def test_an_unknown_fault_is_unknown():
    assert "did you mean 'dropped_fence'?" in row("fault", "droped_fence", droped_fence="x").reason


def test_an_equivalent_that_is_one():
    told = "equivalent: quiet waits for the put as well"
    found = row("equivalent", "dropped_fence", ring.fenced_twice, dropped_fence=told)
    assert (found.status, found.declared) == ("equivalent", (told,))
    assert (found.plans_run, found.fired["dropped_fence"]) == (24, 24)


def test_an_equivalent_that_is_none():
    found = row("equivalent", "dropped_fence", dropped_fence="equivalent: surely")
    assert found.status == "misdeclared"
    assert found.reason == f"not equivalent: {UNWRITTEN} after 2 plans, root seed 0"
    assert found.shrunk.ranks == 1


def test_an_equivalent_that_is_never_exercised_verifies_nothing(monkeypatch):
    known = {**registry.faults(), "idle": Idle}
    monkeypatch.setattr(registry, "faults", lambda: known)
    found = row("equivalent", "idle", idle="equivalent: it does nothing")
    assert (found.status, found.reason) == (
        "unknown", "verifies nothing: it fired in 0 of 24 plans"
    )


def test_an_equivalent_that_fires_and_changes_no_run_verifies_nothing(monkeypatch):
    monkeypatch.setattr(Trial, "changes_runs", lambda self: False)
    found = row("equivalent", "dropped_fence", ring.fenced_twice, dropped_fence="equivalent: x")
    assert (found.status, found.reason) == (
        "unknown", "verifies nothing: it changes no run of 12 plans"
    )


def test_what_changes_a_run_is_seen():
    scenario = dataclasses.replace(ring.fenced_twice, bug_faults={})
    trial = Trial(Case("equivalent", scenario.name, "dropped_fence"), scenario, LIMITS, None)
    assert not trial.changes_runs()  # nothing was sampled yet
    trial.hunted(0)
    assert trial.changes_runs()
    trial.sample = [msgspec.structs.replace(plan, faults=()) for plan in trial.sample]
    assert not trial.changes_runs()


def test_an_equivalent_of_a_wrong_system_is_a_false_alarm():
    found = row("equivalent", "dropped_fence", ring.WRONG, dropped_fence="equivalent: x")
    assert found.status == "false_alarm"
    assert "its twin shows" in found.reason


def test_a_twin_that_is_right():
    found = row("twin", "")
    assert (found.status, found.plans_run, found.name) == ("clean", 24, "")
    assert found.distinct_runs > 6
    assert found.fired["late_put"] > 0


def test_a_twin_that_is_wrong_is_a_false_alarm():
    found = row("twin", "", ring.WRONG)
    assert found.status == "false_alarm"
    assert found.reason == f"{UNWRITTEN} after 2 plans, root seed 0, without a planted bug"
    assert found.found == {UNWRITTEN: 2}
    assert (found.shrunk.ranks, found.shrunk.proven) == (1, True)


def test_a_checker_that_fails_makes_its_row_unknown(monkeypatch):
    def broken(self, record):
        raise KeyError("lost")

    monkeypatch.setattr("harness.checkers.lifetime.Lifetime.check", broken)
    found = row("twin", "")
    assert found.status == "unknown"
    assert found.reason == "checker lifetime failed: KeyError: 'lost' (24 times)"
    found = row("mutant", "caught")
    assert (found.status, found.found) == ("unknown", {UNWRITTEN: 2})
    assert found.reason.startswith("checker lifetime failed: KeyError: 'lost' (")


def test_a_finding_that_does_not_repeat_is_not_caught():
    before = []

    def flaky(rank):
        """Right every other time."""
        before.append(1)
        if len(before) % 2:
            rank.fence()

    scenario = dataclasses.replace(ring.RIGHT, mutants={"flaky": ring.of_order(flaky)})
    limits = Limits(root_seeds=(0,), plans_max=30, world_plans=2, mutant_runs=20)
    found = row_of(Case("mutant", "right", "flaky"), scenario, limits)
    assert found.status == "survived"
    assert f"{UNWRITTEN} does not count: its plan does not repeat" in found.reason


def test_a_system_that_cannot_be_judged_is_unknown():
    def reference(size):
        raise ValueError("no")

    scenario = dataclasses.replace(ring.RIGHT, reference=lambda params, size: reference(size))
    found = row_of(Case("twin", "right"), scenario, LIMITS)
    assert found.status == "unknown"
    assert "its reference failed" in found.reason


def test_a_host_program_that_exits_is_unknown_and_one_that_stops_ends_it_all():
    def exits(world, params):
        raise error

    scenario = dataclasses.replace(ring.RIGHT, host=exits)
    error = SystemExit(3)
    found = row_of(Case("twin", "right"), scenario, LIMITS)
    assert found.status == "unknown"
    assert found.reason == "the program raised SystemExit: 3, which is no Exception"
    with pytest.raises(SystemExit):
        row_of(Case("twin", "right"), scenario, LIMITS, stop=SystemExit)
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        row_of(Case("twin", "right"), scenario, LIMITS)


def test_limits_bound_the_shrinking():
    limits = msgspec.structs.replace(LIMITS, mutant_runs=3)
    found = row("mutant", "caught", limits=limits)
    assert (found.status, found.shrunk.proven) == ("caught", False)
    assert found.shrunk.why == "the budget of 3 runs was spent"


def test_rows_are_the_same_every_time_and_plans_are_announced():
    seen = []
    case = Case("mutant", "right", "caught")
    first, second = (
        row_of(case, ring.RIGHT, LIMITS, lambda plan, explorer: seen.append(explorer))
        for _ in range(2)
    )
    assert msgspec.structs.replace(first, seconds=0.0) == msgspec.structs.replace(second, seconds=0.0)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert seen.count("default") >= 4


def test_cases_are_all_there():
    scenario = dataclasses.replace(
        ring.RIGHT, bug_faults={"wrong_peer": "deadlock/cycle", "dropped_quiet": "equivalent: none"}
    )
    assert [(case.kind, case.name) for case in cases([scenario])] == [
        ("twin", ""), *(("mutant", name) for name in sorted(ring.MUTANTS)),
        ("equivalent", "dropped_quiet"), ("fault", "wrong_peer"),
    ]


def test_the_worst_rows_come_first():
    def made(status, name):
        return Row(kind="mutant", scenario="s", name=name, status=status)

    rows = [
        made("clean", "a"), made("caught", "b"), made("unknown", "c"), made("survived", "z"),
        made("survived", "y"), made("misdeclared", "e"), made("false_alarm", "f"),
    ]
    assert [one.name for one in in_order(rows)] == ["y", "z", "f", "e", "c", "b", "a"]


def test_the_percentile_is_the_nearest_rank():
    assert percentile95([7]) == 7
    assert percentile95([1, 2, 3]) == 3
    assert percentile95(range(1, 21)) == 19
    assert percentile95(range(1, 101)) == 95


def test_a_packaged_row_is_found_by_its_name_and_its_token_replays():
    case = Case("mutant", "collectives.put_get", "put_without_notify")
    found = row_by_name(case, LIMITS)
    assert (found.status, found.shrunk.ranks) == ("caught", 1)
    plan, scenario = plan_of_token(found.shrunk.token)
    assert [f.name for f in run(plan, scenario=scenario).findings][:1] == [found.shrunk.finding]
    gone = row_by_name(Case("twin", "collectives.put_gett"), LIMITS)
    assert (gone.status, "did you mean" in gone.reason) == ("unknown", True)


def test_a_row_that_was_not_judged():
    case = Case("fault", "s", "f")
    assert not_run(case, "stopped") == Row(
        kind="fault", scenario="s", name="f", status="not_run", reason="stopped"
    )
