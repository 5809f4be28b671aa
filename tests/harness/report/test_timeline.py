"""The timeline draws what happened, chooses what matters, and fits."""

from __future__ import annotations

import pytest

from harness import Finding, Plan, registry, run
from harness.report.timeline import timeline


@pytest.fixture(scope="module")
def barrier():
    scenario = registry.find("collectives.barrier")
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=4)
    return run(plan, scenario=scenario).run


def about(*events: int, kind: str = "wrong_value", rank: int = 0) -> Finding:
    return Finding(checker="integrity", kind=kind, rank=rank, message="m", events=events)


def rows(lines: list[str]) -> list[str]:
    return [line for line in lines if line[:1] in "* " and line[1:].lstrip()[:1].isdigit()]


def test_at_most_24_events_and_every_gap_is_counted(barrier):
    middle = len(barrier.raw) // 2
    lines = timeline(barrier, about(middle))
    drawn = rows(lines)
    assert len(drawn) <= 24
    assert sum(line.startswith("*") for line in drawn) == 1
    skipped = sum(int(line.split()[1]) for line in lines if line.split()[:1] == ["..."])
    assert skipped + len(drawn) == len(barrier.raw)


def test_every_event_is_drawn_when_asked(barrier):
    lines = timeline(barrier, about(3), rows_max=None)
    numbers = [int(line[1:].split()[0]) for line in rows(lines)]
    assert numbers == list(range(len(barrier.raw)))


def test_a_marked_delivery_brings_its_issue_along(barrier):
    index = next(i for i in reversed(range(len(barrier.raw))) if barrier.raw[i][1] == "deliver")
    number = barrier.raw[index][7]
    issue = next(i for i, e in enumerate(barrier.raw) if e[7] == number and e[0] < barrier.ranks)
    numbers = {int(line[1:].split()[0]) for line in rows(timeline(barrier, about(index)))}
    assert {index, issue} <= numbers


def test_arrows_go_from_the_issuing_to_the_receiving_rank(barrier):
    lines = timeline(barrier, about(3), width=140, rows_max=None)
    header = lines[0]
    for index, event in enumerate(barrier.events):
        if event.kind != "deliver":
            continue
        line = next(text for text in rows(lines) if text[1:].split()[0] == str(index))
        lane = barrier.lane_of(event)
        source = header.index(f"rank {lane}")
        target = header.index(f"rank {event.peer}")
        if source < target:
            assert line[source:].startswith(f"#{event.number} -")
            assert line[:target].endswith("> ")
        else:
            assert line.endswith(f"- #{event.number}")
            assert line[target] not in " -<"
            assert " <-" in line[target:source]


def test_ranks_that_do_not_fit_are_listed(barrier):
    lines = timeline(barrier, about(3), width=50)
    assert not lines[0].startswith("event")
    assert any("rank 0: " in line for line in lines)
    assert max(map(len, lines)) <= 50


def test_no_event_at_all_is_drawn_as_nothing():
    scenario = registry.find("collectives.programming_model")
    plan = Plan(
        scenario=scenario.name, params=scenario.params(), ranks=2, bug="scalar_before_tensor"
    )
    outcome = run(plan, scenario=scenario)
    assert outcome.run.raw == []
    assert rows(timeline(outcome.run, outcome.findings[0])) == []
    assert timeline(outcome.run, outcome.findings[0]) == ["no rank had begun"]


def test_a_read_that_came_too_late_has_its_edge_at_the_write():
    mesh = registry.find("collectives.allreduce_mesh")
    plan = Plan(
        scenario=mesh.name, params=mesh.params(sizes=(1, 1)), ranks=2, bug="missing_second_barrier"
    )
    outcome = run(plan, scenario=mesh)
    (finding,) = outcome.findings
    lines = timeline(outcome.run, finding)
    (edge,) = (at for at, line in enumerate(lines) if "x->" in line and "rank" in line)
    write = next(i for i in finding.events if outcome.run.events[i].kind == "store")
    assert lines[edge].strip() == f"x-> rank 0 reads only at {max(finding.events)}"
    assert lines[edge - 1].startswith(f"* {write} ")


def test_a_marked_event_keeps_its_value_in_narrow_columns():
    mesh = registry.find("collectives.allreduce_mesh")
    plan = Plan(scenario=mesh.name, params=mesh.params(), ranks=4, bug="missing_barrier")
    outcome = run(plan, scenario=mesh)
    lines = timeline(outcome.run, outcome.findings[0])
    marked = [line for line in lines if line.startswith("*") and "remote_load" in line]
    assert any(line.endswith("= poison") for line in marked)
    assert max(map(len, lines)) <= 80
