"""Findings of programs that are not functions of their plan: kept, and said so."""

import itertools

import pytest
import torch

from harness import Finding, Scenario, scenario, values
from harness.finding import Verdict
from harness.hunt import Order, hunt
from harness.repeat import checked, repeatable, settled


def from_left(size):
    return [values((rank - 1) % size, 2) for rank in range(size)]


def shift(rank, fenced=True):
    data = rank.window("data", 2, torch.float32)
    cells = rank.window("cells", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(data, right, values(rank.index, 2))
    if fenced:
        rank.fence()
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(data, 0, 2)


def outcome_of(program, root_seed=7):
    found = hunt(Order(program, root_seed, plans_max=60))
    assert found.outcome is not None
    return found


@pytest.mark.parametrize("root_seed", range(4))
def test_a_finding_that_repeats_has_no_note(root_seed):
    @scenario(reference=from_left)
    def unfenced(rank):
        return shift(rank, fenced=False)

    found = outcome_of(unfenced, root_seed)
    assert repeatable(found.outcome)
    assert found.outcome.notes == ()


@pytest.mark.parametrize("every", [7, 11, 50])
def test_results_that_depend_on_earlier_runs_are_said_to(every):
    count = itertools.count(1)

    @scenario(reference=from_left)
    def counts(rank):
        return shift(rank) + (next(count) % every == 0)

    found = outcome_of(counts)
    assert found.outcome.verdict is Verdict.FAIL
    assert not repeatable(found.outcome)
    assert "outside the plan" in found.outcome.notes[-1]


@pytest.mark.parametrize("every", [5, 23, 39])
def test_events_that_depend_on_earlier_runs_are_said_to(every):
    count = itertools.count(1)

    @scenario(reference=from_left)
    def syncs(rank):
        if next(count) % every == 0:
            rank.sync()
        return shift(rank)

    found = outcome_of(syncs)
    assert found.finding.checker == "matching"
    assert not repeatable(found.outcome)


def test_an_explored_run_that_cannot_be_repeated_is_kept():
    @scenario(reference=from_left)
    def unfenced(rank):
        return shift(rank, fenced=False)

    first = outcome_of(unfenced)
    extra = itertools.count()

    @scenario(reference=from_left)
    def other(rank):
        next(extra)
        rank.sync()
        return shift(rank)

    again = settled(first.outcome, first.finding, other, explored=True)
    assert again.run is first.outcome.run
    assert not repeatable(again)
    assert "differs at event" in again.notes[-1]
    assert not repeatable(checked(first.outcome, first.finding, other))


class EveryOther:
    """Finds something in every other run."""

    name = "odd"

    def __init__(self):
        self.count = itertools.count()

    def check(self, run):
        if next(self.count) % 2 == 0:
            yield Finding(checker="odd", kind="odd", rank=0, message=f"{run.observed} is odd")


def test_how_often_a_finding_of_a_real_program_shows_is_said():
    def host(world, params):
        world.dispatch(lambda rank: 0, device=0)
        return 3

    real = Scenario(name="real", host=host, ranks=(1, 1), checkers=(EveryOther(),))
    found = hunt(Order(real, 1, plans_max=3))
    assert found.finding.message == "3 is odd"
    assert "does not show it (3 of 6 runs did)" in found.outcome.notes[-1]
    assert not repeatable(found.outcome)
