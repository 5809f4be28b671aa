"""The self-test tells what each checker is needed for, and fails where one is not."""

import dataclasses
import json

import pytest
import torch

from harness import registry
from harness.checkers import CHECKERS, RACES
from harness.cli.selftest import run_selftest
from harness.finding import Finding
from harness.scenario import Scenario, mutant
from harness.selftest import Row, SelfTest, selftest

PROBE = "probes.one_each"


def test_every_checker_is_needed_for_a_probe_of_its_own():
    result = selftest([registry.find(PROBE)])
    alone = {row.checker: row.only for row in result.rows}
    expected = {m.expects.split("/")[0]: (f"{PROBE}.{name}",)
                for name, m in registry.find(PROBE).mutants.items()}
    assert alone == expected
    assert set(expected) == {checker.name for checker in (*CHECKERS, RACES)}
    assert result.passed
    assert result.escaped == ()


def told(rank):
    return torch.zeros(1)


def program(rank):
    return told(rank)


@mutant(of=told, expects="integrity/wrong_value", ranks=1)
def harmless(rank):
    """It changes nothing, so nothing can find it."""
    return torch.zeros(1)


def host(world, params):
    for index in range(world.size):
        world.dispatch(program, device=index)


EQUAL = Scenario(
    name="equal", host=host, mutants={"harmless": harmless},
    reference=lambda params, size: {"result": [torch.zeros(1)] * size},
)


def test_a_mutant_that_escapes_fails_it():
    result = selftest([registry.find(PROBE), EQUAL])
    assert result.escaped == ("equal.harmless",)
    assert not result.passed


def test_a_checker_that_nothing_needs_fails_it():
    probe = registry.find(PROBE)
    fewer = {name: m for name, m in probe.mutants.items() if name != "one_too_much"}
    result = selftest([dataclasses.replace(probe, mutants=fewer)])
    assert [row.checker for row in result.rows if not row.only] == ["integrity"]
    assert not result.passed


class Peculiar:
    """A scenario's own checker: it knows the one thing that the others do not look at."""

    name = "peculiar"

    def check(self, run):
        if run.observed != {"told": 1}:
            yield Finding(checker=self.name, kind="other", rank=-1, message="another number was told")


def number():
    return 1


@mutant(of=number, expects="peculiar/other", ranks=1)
def another_number():
    """It tells another number, which is compared with nothing."""
    return 2


def telling(world, params):
    host(world, params)
    return {"told": number()}


@pytest.mark.parametrize("checkers", [(Peculiar(),), ()])
def test_a_scenarios_own_checkers_take_part(checkers):
    own = Scenario(
        name="telling", host=telling, mutants={"another_number": another_number}, reference=None,
        checkers=checkers,
    )
    result = selftest([own])
    alone = {row.checker: row.only for row in result.rows if row.only}
    assert alone == ({"peculiar": ("telling.another_number",)} if checkers else {})
    assert result.escaped == (() if checkers else ("telling.another_number",))


@pytest.mark.parametrize("passed", [True, False])
def test_the_command(monkeypatch, capsys, passed):
    rows = (Row("races", ("a.b", "a.c", "a.d", "a.e", "a.f") if passed else (), ("x.y",)),)
    monkeypatch.setattr("harness.cli.selftest.selftest", lambda scenarios: SelfTest(rows, ()))
    assert run_selftest(json=False) == (0 if passed else 1)
    text = capsys.readouterr().out
    assert ("a.b, a.c, a.d, a.e and 1 more" in text) is passed
    assert ("nothing survives without it" in text) is not passed
    run_selftest(json=True)
    data = json.loads(capsys.readouterr().out)
    assert data["rows"][0]["checker"] == "races"
