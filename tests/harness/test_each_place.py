"""The error loop tries each operation that a fault can hit, once, and says when it could not."""

import pytest

from faults.storage import IoError, ShortRead
from harness import Plan, Verdict, run
from harness.each_place import each_place
from harness.hunt import Order, hunt
from harness.report.hunt_text import reason_of, verdict_of
from scenarios.store import round_trip

scenario = round_trip.scenario
SMALL = round_trip.Params(blocks=1, dropped=0, workers=1, durability="none")


def plan_of(*faults):
    return Plan(scenario=scenario.name, params=SMALL, ranks=1, faults=faults)


def operations(record):
    return sum(event.kind.startswith("disk_") for event in record.events)


def test_every_operation_of_the_default_run_is_a_place_and_no_other():
    found = list(each_place(plan_of(), scenario, [IoError]))
    total = operations(run(plan_of(), scenario=scenario).run)
    errors = {fault.error for fault in found}
    assert errors == {"EIO", "ENOSPC", "EACCES", "EROFS", "EINTR", "ESTALE"}
    for error in errors:
        assert [fault.nth for fault in found if fault.error == error] == list(range(total))
    beyond = IoError(rank=0, nth=total)
    assert run(plan_of(beyond), scenario=scenario).run.fired[0] in (0, 1)
    assert all(run(plan_of(fault), scenario=scenario).run.fired == [1] for fault in found[::7])


@pytest.mark.parametrize("kind", [IoError, ShortRead])
def test_the_places_of_two_ranks_come_rank_by_rank(kind):
    plan = Plan(scenario=scenario.name, params=SMALL, ranks=2)
    ranks = [fault.rank for fault in each_place(plan, scenario, [kind])]
    assert set(ranks) == {0, 1}
    if kind is ShortRead:
        assert ranks == sorted(ranks)


def test_a_hunt_in_each_place_ends_by_itself():
    found = hunt(Order(scenario, 1, faults=("short_write",), each=True, ranks=(1, 1)))
    assert found.finding is None
    assert found.statistics.fired["short_write"] == found.statistics.plans > 5
    assert verdict_of(found) is Verdict.PASS


def test_a_hunt_that_was_cut_short_is_no_pass():
    found = hunt(Order(scenario, 1, each=True, ranks=(1, 1), plans_max=5))
    assert found.statistics.plans == 5
    assert verdict_of(found) is Verdict.UNKNOWN
    assert "before each place was tried" in reason_of(found)
