"""c10d's stores: the checker's model, and what hunts find of dead servers and cut files."""

import pytest

from harness import Answer, Expired, Failed, Plan, Verdict, run
from harness.hunt import hunt
from harness.portfolio import Order, Target
from scenarios.rendezvous.stores import Calls, RendezvousChecker, file, tcp

SET = (0, "set", ("text", "a"), Answer(None))
REFUSED = Failed(("RuntimeError",), "no")


def judged(*made, event="none", at=0):
    calls = Calls("TCPStore", event, at, event, list(made))
    record = run(Plan(scenario="x", params=tcp.params(), ranks=1), scenario=QUIET).run
    record.observed = calls
    return [(found.kind, found.message) for found in RendezvousChecker().check(record)]


def nothing(rank):
    return rank.index


def host(world, params):
    world.dispatch(nothing, device=0)


QUIET = tcp.__class__(name="x", host=host, params=tcp.params, ranks=(1, 1))


def test_a_right_history_has_no_finding():
    assert judged(
        (0, "set", ("text", "a"), Answer(None)), (1, "get", ("text",), Answer("a")),
        (0, "add", ("count", 1), Answer(1)), (1, "add", ("count", 1), Answer(2)),
        (0, "get", ("missing",), REFUSED), (0, "add", ("text", 1), REFUSED),
        (0, "compare_set", ("missing", "other", "b"), Answer("")),
    ) == []
    assert judged((0, "get", ("text",), REFUSED), event="killed") == []


@pytest.mark.parametrize(("made", "event", "kind"), [
    ([(0, "get", ("text",), Answer("a"))], "none", "phantom_value"),
    ([SET, (1, "get", ("text",), Answer("b"))], "none", "phantom_value"),
    ([SET, (1, "get", ("text",), REFUSED)], "none", "unexpected_error"),
    ([(0, "add", ("count", 1), Answer(1)), (1, "add", ("count", 1), Answer(1))], "none", "phantom_value"),
    ([(0, "compare_set", ("missing", "other", "b"), Answer("other"))], "none", "phantom_value"),
    ([(0, "set", ("text", "a"), Answer(None))], "killed", "lost_write"),
    ([(0, "get", ("text",), Expired(4.0))], "stopped", "hang"),
])
def test_each_kind_is_told(made, event, kind):
    ((told, message),) = judged(*made, event=event)
    assert told == kind
    assert message.startswith(f"client {made[-1][0]}'s {made[-1][1]}(")


@pytest.mark.parametrize(("scenario", "calls"), [
    (tcp, ("set", "get", "get", "add", "add", "set")), (file, ("set", "get", "get", "add", "add", "set")),
])
def test_a_store_that_nothing_happens_to_is_right(scenario, calls):
    outcome = run(Plan(scenario="x", params=scenario.params(calls=calls), ranks=1), scenario=scenario)
    assert outcome.verdict is Verdict.PASS


@pytest.mark.parametrize(("scenario", "kind"), [
    (tcp, "lost_write"), (tcp, "unexpected_error"), (tcp, "phantom_value"), (tcp, "hang"),
    (file, "phantom_value"), (file, "hang"),
])
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_hunts_find_it(scenario, kind):
    result = hunt(Order(scenario, 1, plans_max=400, until=Target(f"rendezvous/{kind}")))
    assert result.finding.kind == kind
