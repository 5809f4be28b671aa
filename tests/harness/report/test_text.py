"""The report: its order, its width, its last line, and that pytest prints the same one."""

from __future__ import annotations

import re
from typing import Annotated

import pytest
import torch
from msgspec import Meta

import harness
from harness import Hold, Plan, registry, run, values
from harness.checkers import CHECKERS, RACES
from harness.checkers.golden import Golden
from harness.checkers.pld_rules import PldRules
from harness.checkers.torch_program import TorchProgram
from harness.corpus import plan_of_token, token_of
from harness.hunt import Order, hunt
from harness.minimise import minimise
from harness.report.text import PROPERTIES, report


def row(size, n):
    return [values((rank - 1) % size, n) for rank in range(size)]


@harness.scenario(reference=row)
def ring(rank, n: Annotated[int, Meta(ge=1, le=8)] = 2):
    inbox = rank.window("inbox", n, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(inbox, right, values(rank.index, n))
    rank.notify(flag, right, 0, 1)
    rank.wait(flag, 0, 1)
    return rank.load(inbox, 0, n)


@harness.scenario(reference=row)
def silent(rank, n: Annotated[int, Meta(ge=1, le=8)] = 1):
    inbox = rank.window("inbox", n, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    rank.put_signal(inbox, (rank.index + 1) % rank.size, values(rank.index, n), 0, flag, 0, 1)
    rank.wait(flag, 0, 2)
    return rank.load(inbox, 0, n)


def late():
    return run(
        Plan(scenario="ring", params=ring.params(), ranks=2, schedule=(Hold(0, 0),)), scenario=ring
    )


SNAPSHOT = """\
FAIL integrity/unwritten_memory in ring

Property
  every result equals the reference, and nothing is written outside its window

Finding
  FINDING

Evidence
  EVIDENCE

First failing rank
  rank 1 of 2

Drawn
  scenario = 'ring'
  ranks = 2
  params = ring_params(n=2)
  faults = []
  schedule = [Hold(op=0, until=0)]

Timeline
  event rank 0                              rank 1
   ...  7 events of window allocation
  *  7  put #0 -> 1 inbox[0:2] := [1, 65]
  *  8  notify #1 -> 1 flag[0] +1
  *  9  #1 -------------------------------> flag[0] := 1
   ...  1 event of window allocation
    11                                      put #2 -> 0 inbox[0:2] := [2, 66]
    12  inbox[0:2] := [2, 66] <------------ #2
    13                                      notify #3 -> 0 flag[0] +1
    14  flag[0] := 1 <--------------------- #3
    15                                      wait flag[0] = 1
  * 16                                      load inbox[0:2] = poison
                                            x-> #0 is delivered only at 19
    17  wait flag[0] = 1
    18  load inbox[0:2] = [2, 66]
  * 19  #0 -------------------------------> inbox[0:2] := [1, 65]

  * the finding   x-> missing edge   --> delivery

Likely cause
  CAUSE

Remedy
  REMEDY

rankfault replay TOKEN"""


def test_a_whole_report(tmp_path):
    """Everything but the checkers' own words and the token stands here as printed."""
    outcome = late()
    finding = outcome.findings[0]
    text = report(outcome, finding, ring)
    said = {
        "FINDING": finding.message,
        "EVIDENCE": " ".join(finding.evidence),
        "CAUSE": finding.cause,
        "REMEDY": finding.remedy,
        "TOKEN": token_of(outcome.plan),
    }
    assert unwrapped(text) == unwrapped(
        re.sub("|".join(said), lambda match: said[match[0]], SNAPSHOT)
    )


def unwrapped(text: str) -> str:
    """Wrapped paragraphs on one line; timelines, which are never wrapped, line by line."""
    sections = text.split("\n\n")
    return "\n\n".join(
        part if part.startswith(("Timeline", "Drawn")) else " ".join(part.split())
        for part in sections
    )


def test_pytest_and_the_command_line_print_the_same():
    """`hunt` prints report(...) of the minimised finding; so does a property that fails."""

    @harness.property(ring, max_examples=50)
    def never_fails(outcome):
        pass

    with pytest.raises(AssertionError) as caught:
        never_fails()
    small = minimise(late(), late().findings[0], ring, seconds=600.0)
    assert str(caught.value).strip() == report(small.outcome, small.finding, ring, small)


def test_the_last_line_is_one_command_that_replays():
    outcome = hunt(Order(registry.find("collectives.put_get"), 1, bug="put_without_wait")).outcome
    assert outcome is not None
    finding = outcome.findings[0]
    scenario = registry.find("collectives.put_get")
    last = report(outcome, finding, scenario).splitlines()[-1]
    assert last.startswith("rankfault replay rf1:")
    plan, found = plan_of_token(last.split()[-1])
    assert run(plan, scenario=found).finds(finding.identity)
    named = report(outcome, finding, scenario, replay="seeds/x.json")
    assert named.splitlines()[-1] == "rankfault replay seeds/x.json"


@pytest.mark.parametrize("width", [80, 64, 50, 40])
@pytest.mark.parametrize("full", [False, True])
def test_no_line_is_wider_than_asked(width, full):
    scenario = registry.find("collectives.barrier")
    for bug in scenario.mutants:
        found = hunt(Order(scenario, 3, bug=bug, plans_max=100))
        assert found.outcome is not None
        assert found.finding is not None
        text = report(found.outcome, found.finding, scenario, width=width, full=full)
        lines = text.splitlines()
        assert [line for line in lines[1:-1] if len(line) > width] == []
        assert all(line.isprintable() and line == line.rstrip() for line in lines)


def test_a_wait_that_never_ends_is_drawn_in_its_ranks_column():
    plan = Plan(scenario="silent", params=silent.params(), ranks=2)
    outcome = run(plan, scenario=silent)
    text = report(outcome, outcome.findings[0], silent)
    assert "x-> wait flag[0] >= 2, is 1" in text
    assert text.index("Property") < text.index("Evidence") < text.index("First failing rank")
    assert text.index("First failing rank") < text.index("Drawn") < text.index("Timeline")
    assert text.index("Timeline") < text.index("Likely cause") < text.index("rankfault replay")


def test_what_raised_is_shown_with_its_own_traceback():
    @harness.scenario(reference=lambda size: [None] * size)
    def raises(rank):
        if rank.index == 1:
            raise ValueError("no such shard")

    outcome = run(Plan(scenario="raises", params=raises.params(), ranks=3), scenario=raises)
    text = report(outcome, outcome.findings[0], raises)
    assert "Traceback" in text
    assert "ValueError: no such shard" in text
    assert "rank 1 of 3" in text


def test_a_proof_is_told_and_its_absence_too():
    outcome = late()
    finding = outcome.findings[0]
    proven = minimise(outcome, finding, ring, seconds=600.0)
    assert proven.proven
    assert f"proven: {proven.why}" in " ".join(
        report(proven.outcome, proven.finding, ring, proven).split()
    )
    hasty = minimise(outcome, finding, ring, seconds=0.0)
    assert "not proven: the budget" in report(hasty.outcome, hasty.finding, ring, hasty)
    assert "Minimal" not in report(outcome, finding, ring)


def test_every_checker_says_its_property():
    own = [checker for one in registry.scenarios().values() for checker in one.checkers]
    of_programs = (TorchProgram(), Golden(), PldRules())
    names = {checker.name for checker in (*CHECKERS, RACES, *own, *of_programs)}
    assert names <= set(PROPERTIES)
