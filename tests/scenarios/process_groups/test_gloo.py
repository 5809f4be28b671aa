"""gloo under faults and mistakes: what it survives, and what of it is a finding (docs/torch.md)."""

import pytest

from harness import Plan, Verdict, run
from scenarios.process_groups.gloo import Gloo, gloo

TWICE = ("all_reduce", "all_reduce")


def judged(ranks=3, **given):
    plan = Plan(scenario=gloo.name, params=Gloo(**given), ranks=ranks)
    outcome = run(plan, scenario=gloo)
    return outcome.verdict, [(found.kind, found.rank) for found in outcome.findings]


def test_every_call_is_right_when_nothing_happens():
    calls = ("broadcast", "all_gather", "gather", "reduce_scatter"), ("all_to_all", "send", "barrier")
    for some in calls:
        assert judged(calls=some, numel=5, deferred=True) == (Verdict.PASS, [])


@pytest.mark.parametrize("event", ["late", "dropped", "killed", "killed_inside", "stopped"])
def test_what_the_world_does_is_survived_or_an_error_in_time(event):
    assert judged(event=event, victim=1, at=1, calls=TWICE) == (Verdict.PASS, [])


@pytest.mark.nightly
@pytest.mark.parametrize("event", ["too_late", "other_kind"])
def test_what_takes_a_time_out_is_an_error_too(event):
    assert judged(event=event, victim=1, calls=TWICE) == (Verdict.PASS, [])


@pytest.mark.parametrize(("event", "given"), [
    ("swapped", {"deferred": True}), ("other_op", {}), ("other_dtype", {}),
])
def test_what_gloo_does_not_compare_is_silently_wrong(event, given):
    assert judged(event=event, victim=1, calls=TWICE, **given) == (Verdict.FAIL, [("silence", 0)])


@pytest.mark.parametrize(("ranks", "given"), [
    (2, {"dtype": "uint8", "numel": 1, "event": "other_dtype", "calls": ("all_reduce",)}),
    (2, {"numel": 8, "event": "other_size", "calls": ("broadcast",)}),
])
def test_a_survivor_is_aborted_for_a_mistake_of_another(ranks, given):
    verdict, found = judged(ranks, **given)
    assert verdict is Verdict.FAIL
    assert {kind for kind, _ in found} <= {"aborted", "silence"}
    assert ("aborted", 1) in found


def test_the_finding_names_what_happened_and_not_where():
    plan = Plan(scenario=gloo.name, params=Gloo(event="other_op", victim=2), ranks=3)
    (found,) = run(plan, scenario=gloo).findings
    assert found.identity == "process_group/silence@process_group:all_reduce#0,victim:other_op#0"
    assert found.cause
    assert any("exit code 0" in line for line in found.evidence)
