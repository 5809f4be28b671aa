"""The programs of torch_programs/ simulated: every defect is found, no correct program is accused."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from harness.frontends.torch_distributed.script import script_scenario
from harness.hunt import Order, hunt

HERE = Path(__file__).parent
README = (HERE.parents[1] / "README.md").read_text()
TO_FIND = 5  # plans, the default run included
BY_DAY, BY_NIGHT = 4, 500

# torch's own warnings of names it deprecates in one version or another
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(HERE), *sys.path])
    gloo_worlds = importlib.import_module("gloo_worlds")
CORRECT = gloo_worlds.programs("correct")
DEFECTIVE = gloo_worlds.programs("defective")


def hunted(program, text, ranks, plans):
    made = script_scenario(program.path.name, text.encode())
    return hunt(Order(made, 7, ranks=(ranks, ranks), plans_max=plans))


def named(programs):
    return [pytest.param(program, id=program.name) for program in programs]


@pytest.mark.parametrize("program", named(DEFECTIVE))
def test_every_planted_defect_is_found(program):
    cell = re.search(rf"\(`{program.name}`\) \|.*\| (\S+) \|$", README, re.MULTILINE)[1]
    assert cell == "found"
    for ranks in program.ranks:
        result = hunted(program, program.text, ranks, TO_FIND)
        assert result.finding is not None, f"not found at {ranks} ranks"
        assert result.finding.kind in program.expects, (ranks, str(result.finding))


@pytest.mark.parametrize("program", named([*CORRECT, *DEFECTIVE]))
def test_no_correct_program_and_no_cured_one_is_accused(program):
    result = hunted(program, program.cured, program.ranks[-1], BY_DAY)
    assert result.finding is None, str(result.finding)
    assert result.statistics.plans == BY_DAY


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", named([*CORRECT, *DEFECTIVE]))
def test_nor_is_any_in_hundreds_of_plans(program):
    for ranks in program.ranks:
        result = hunted(program, program.cured, ranks, BY_NIGHT // len(program.ranks))
        assert result.finding is None, (ranks, str(result.finding))
