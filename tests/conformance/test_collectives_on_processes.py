"""Each rung of the collectives, and each small protocol beside them, on both fabrics.

Conducted, real processes make the very events of the simulated fabric: the same order, the same values,
so results agree bit for bit, floats included (their sums are taken in the documented order). In natural
order the results are those of the reference.
"""

import msgspec
import pytest
import torch

from harness import Hold, Plan, Preempt, Verdict, Visibility, registry, run

RUNGS = [name for name in registry.scenarios() if name.startswith("collectives.")]
SEVERAL_LANES = ("collectives.two_lanes", "collectives.streams")
SCHEDULES = {
    "default": (),
    "held": (Hold(op=1, until=0), Hold(op=4, until=9), Preempt(at=3, to=1)),
}


def plan_of(name, schedule=(), **changes):
    found = registry.find(name)
    ranks = max(min(3, found.ranks[1]), found.ranks[0])
    plan = Plan(scenario=name, params=found.params(), ranks=ranks, schedule=schedule)
    return msgspec.structs.replace(plan, **changes)


def same(given, expected):
    """Whether two results are alike bit for bit."""
    if isinstance(expected, torch.Tensor):
        return given.dtype == expected.dtype and given.shape == expected.shape and torch.equal(
            given.reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8)
        )
    if isinstance(expected, dict):
        return given.keys() == expected.keys() and all(same(given[k], expected[k]) for k in expected)
    if isinstance(expected, list | tuple):
        return len(given) == len(expected) and all(map(same, given, expected))
    return given == expected


def alike(plan):
    """Run on both fabrics and compare everything that a checker may read."""
    simulated, real = run(plan), run(plan, "processes")
    one, other = simulated.run, real.run
    assert other.identity() == one.identity()
    assert other.value_identity() == one.value_identity()
    assert [f.identity for f in real.findings] == [f.identity for f in simulated.findings]
    assert [f.message for f in real.findings] == [f.message for f in simulated.findings]
    assert real.notes == simulated.notes
    assert same(other.observed, one.observed)
    assert same(other.results, one.results)
    for known, wanted in zip(other.names, one.names, strict=True):
        assert (known.name, known.kind, known.shape) == (wanted.name, wanted.kind, wanted.shape)
        if known.kind != "tensor" and known.name not in other.private:  # a process's own memory
            assert all(known.final(rank) == wanted.final(rank) for rank in wanted.regions)
    for attribute in (
        "awaited", "sources", "calls", "points", "operations", "deviations_applied", "ended", "dead",
        "peers_lost", "fired", "seen", "dispatched", "blocked", "livelock", "guards_intact",
    ):
        assert getattr(other, attribute) == getattr(one, attribute), attribute
    return real


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("name", RUNGS)
def test_conducted_processes_make_the_simulated_events(name, schedule):
    assert alike(plan_of(name, schedule)).verdict is Verdict.PASS


@pytest.mark.parametrize("name", RUNGS)
def test_natural_order_gives_the_references_results(name):
    outcome = run(plan_of(name), "processes", natural=1)
    assert outcome.findings == ()
    assert outcome.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("collectives.put_get", "notify_overtakes_put"),  # a wrong value
        ("collectives.barrier", "fence_for_quiet"),
        ("collectives.pipeline", "one_counter_for_all_chunks"),
        ("collectives.dissemination", None),
    ],
)
def test_torn_and_eager_mean_the_same(name, bug):
    for seen in (Visibility(torn=4), Visibility(delivery="eager")):
        alike(plan_of(name, SCHEDULES["held"], bug=bug, visibility=seen))


def test_every_mutant_of_two_scenarios_shows_the_same():
    for name in ("collectives.barrier", "collectives.allreduce_mesh"):
        for bug, mutant in registry.find(name).mutants.items():
            alike(plan_of(name, bug=bug, ranks=mutant.ranks))


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("name", SEVERAL_LANES)
def test_every_mutant_of_the_scenarios_with_two_lanes_shows_the_same(name, schedule):
    for bug, mutant in registry.find(name).mutants.items():
        alike(plan_of(name, schedule, bug=bug, ranks=mutant.ranks))


def test_the_orders_that_two_lanes_need_show_their_findings_on_processes_too():
    shown = set()
    for to in (0, 1):
        schedule = tuple(Preempt(at=at, to=to) for at in range(2, 90, 2))
        for name in SEVERAL_LANES:
            for bug in registry.find(name).mutants:
                if alike(plan_of(name, schedule, bug=bug)).findings:
                    shown.add(bug)
    assert len(shown) >= 4


@pytest.mark.parametrize("name", ["collectives.allreduce_mesh", "collectives.two_lanes"])
@pytest.mark.parametrize(
    "fault",
    ["dropped_notify", "wrong_peer", "offset_off_by_one", "missing_share_memory", "crash", "wrong_shape",
     "scalar_before_tensor", "dispatch_loop_too_short", "notify_after_wait"],
)
def test_faults_do_the_same(fault, name):
    alike(plan_of(name, faults=(registry.faults()[fault](rank=1),)))
