"""Scenarios and mutants as values, and the test values they use."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType
from typing import Annotated

import msgspec
import pytest
import torch
from msgspec import Meta

from harness import Finding, Plan, run
from harness.errors import UsageError
from harness.host import World
from harness.scenario import Mutant, NoParams, Scenario, mutant, scenario, values


def twin(rank, count):
    """The correct one."""
    return count


def test_a_program_becomes_a_scenario():
    @scenario(reference=lambda size, count, name: [count] * size, ranks=(2, 4), tolerance=0.5)
    def counted(rank, count: Annotated[int, Meta(ge=1, le=9)] = 3, *, name: str):
        """Counts."""
        return rank, count, name

    assert isinstance(counted, Scenario)
    assert (counted.name, counted.doc, counted.ranks, counted.tolerance) == (
        "counted",
        "Counts.",
        (2, 4),
        0.5,
    )
    given = counted.params(count=5, name="x")
    assert msgspec.to_builtins(given) == {"count": 5, "name": "x"}
    assert counted.params(name="y").count == 3
    with pytest.raises(msgspec.ValidationError, match=r"<= 9"):
        msgspec.convert({"count": 10, "name": "x"}, counted.params)
    assert counted.reference(given, 3) == {"result": [5, 5, 5]}

    world = World(2)
    counted.host(world, given)
    for queue in world.finished().queues:
        (dispatch,) = queue
        assert dispatch.program("the rank", *dispatch.args) == ("the rank", 5, "x")


def test_every_parameter_needs_an_annotation():
    with pytest.raises(UsageError, match="parameter 'n' needs an annotation"):

        @scenario(reference=lambda size, n: [])
        def unclear(rank, n=3):
            pass


@pytest.mark.parametrize("ranks", [(0, 4), (3, 2), (1, 65)])
def test_world_sizes_have_bounds(ranks):
    with pytest.raises(UsageError, match=r"must lie within 1\.\.64"):
        Scenario(
            name="s", host=lambda world, given: None, reference=lambda given, size: {}, ranks=ranks
        )


def test_a_scenario_without_parameters():
    found = Scenario(name="s", host=lambda world, given: None, reference=lambda given, size: {})
    assert found.params is NoParams
    assert (found.mutants, found.bug_faults, found.digest) == ({}, {}, "")


def test_a_mutant_replaces_its_twin_while_it_is_planted(monkeypatch):
    module = ModuleType("rankfault_test_twin")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def step(rank, count):\n    return count", vars(module))
    original = module.step

    @mutant(of=module.step, expects="integrity/wrong_value", ranks=2)
    def off_by_one(rank, count):
        """Counts one too many; wrong_value; two ranks."""
        return count + 1

    assert isinstance(off_by_one, Mutant)
    assert (off_by_one.name, off_by_one.expects, off_by_one.ranks) == (
        "off_by_one",
        "integrity/wrong_value",
        2,
    )
    with off_by_one.planted():
        assert module.step(None, 1) == 2
    assert module.step is original
    with pytest.raises(KeyError), off_by_one.planted():
        raise KeyError
    assert module.step is original


def test_a_mutant_says_its_bug_and_has_its_twins_parameters():
    with pytest.raises(UsageError, match="mutant silent: its docstring must say the bug"):

        @mutant(of=twin, expects="x/y", ranks=2)
        def silent(rank, count):
            return count

    with pytest.raises(UsageError, match="mutant wider: its parameters differ from twin's"):

        @mutant(of=twin, expects="x/y", ranks=2)
        def wider(rank, count, more):
            """Has one too many."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float64, torch.int64])
def test_values_are_unique_in_rank_element_and_round(dtype):
    seen = torch.cat([values(rank, 8, round, dtype) for rank in range(64) for round in range(2)])
    assert seen.dtype is dtype
    assert len(seen.unique()) == len(seen)
    assert seen.min() >= 0
    assert seen.double().sum() < 2**24 * 64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint8])
def test_values_are_exact_in_narrow_types(dtype):
    found = values(3, 200, dtype=dtype)
    assert torch.equal(found.to(torch.int64).to(dtype), found)
    assert not torch.equal(values(1, 8, dtype=dtype), values(2, 8, dtype=dtype))


def test_sums_over_64_ranks_are_exact_in_float32():
    total = sum(values(rank, 100) for rank in range(64))
    exact = sum(values(rank, 100, dtype=torch.int64) for rank in range(64))
    assert torch.equal(total.to(torch.int64), exact)


def test_a_mutable_default_belongs_to_each_plan():
    @scenario(reference=lambda size, steps: [steps] * size)
    def program(rank, steps: list[int] = [1, 2]):  # noqa: B006
        return steps

    first, second = program.params(), program.params()
    assert first.steps == second.steps == [1, 2]
    assert first.steps is not second.steps


def test_generators_and_coroutines_are_refused():
    def yields(rank):
        yield rank

    async def waits(rank):
        return rank

    for program, what in ((yields, "yields"), (waits, "is async")):
        with pytest.raises(UsageError, match=what):
            scenario(reference=lambda size: [None] * size)(program)


@pytest.mark.parametrize("reference", [lambda size: [1], lambda size: 1 / 0, lambda size: None])
def test_a_reference_that_fails_is_named_with_its_world(reference):
    @scenario(reference=reference)
    def program(rank):
        return None

    with pytest.raises(UsageError, match=r"its reference failed( at .*)? for 2 ranks"):
        run(Plan(scenario="program", params=program.params(), ranks=2), scenario=program)


class Sees:
    name = "sees"

    def check(self, run):
        yield Finding(checker="sees", kind="seen", rank=0, message=str(run.observed))


def test_a_scenarios_own_checker_judges_what_the_host_returned_and_nothing_else_does():
    def host(world, params):
        world.dispatch(lambda rank: 1, device=0)
        return {"result": "anything"}

    plain = Scenario(name="plain", host=host, ranks=(1, 1))
    plan = Plan(scenario="plain", params=plain.params(), ranks=1)
    assert run(plan, scenario=plain).findings == ()
    watched = dataclasses.replace(plain, checkers=(Sees(),))
    (finding,) = run(plan, scenario=watched, races=True).findings
    assert (finding.name, finding.message) == ("sees/seen", "{'result': 'anything'}")
