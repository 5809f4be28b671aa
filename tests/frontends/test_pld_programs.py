"""The programs of pld_programs/: every pitfall is found, nothing correct and nothing cured is accused."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from harness.diagnosis.pld_causes import PLD
from harness.frontends.pypto.scenarios import scenarios_in
from harness.hunt import Order, hunt

HERE = Path(__file__).parent
TO_FIND = 20  # plans, the default run included
BY_DAY, BY_NIGHT = 20, 500

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(HERE), *sys.path])
    planted = importlib.import_module("planted")
CORRECT = planted.programs_in(HERE / "pld_programs" / "correct")
PITFALLS = planted.programs_in(HERE / "pld_programs" / "pitfalls")
STEPS = [program for program in PITFALLS if program.name.startswith("step_")]


def hunted(program, text, ranks, plans, *, caches=False):
    """The hunts of the program's host calls, on `ranks` devices, until one finds something."""
    argv = ("-d", ",".join(map(str, range(ranks))))
    for made in scenarios_in(program.path.name, text.encode(), argv):
        result = hunt(Order(made, 7, ranks=(ranks, ranks), plans_max=plans, caches=caches))
        if result.finding is not None:
            break
    return result


def named(programs):
    return [pytest.param(program, id=program.name) for program in programs]


def test_there_is_a_pitfall_for_each_step_of_the_tutorial():
    assert [program.name[5:7] for program in STEPS] == [f"{number:02}" for number in range(1, 17)]


def test_the_page_lists_every_rule_and_every_pitfall_with_its_findings():
    page = (HERE.parents[1] / "docs" / "pypto.md").read_text()
    told = page.partition("## Rules\n")[2].partition("\n## ")[0]
    rules = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", told, re.MULTILINE)
    assert rules == [name.removeprefix("pld/") for name in PLD]
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (`\w+/.*) \|$", page, re.MULTILINE))
    assert rows == {
        program.name: ", ".join(f"`{kind}`" for kind in program.expects) for program in PITFALLS
    }


@pytest.mark.parametrize("program", named(PITFALLS))
def test_every_pitfall_is_found(program):
    for ranks in program.ranks:
        result = hunted(program, program.text, ranks, TO_FIND)
        assert result.finding is not None, f"not found at {ranks} ranks"
        assert result.finding.name in program.expects, (ranks, str(result.finding))


@pytest.mark.parametrize("program", named([*CORRECT, *PITFALLS]))
def test_no_correct_program_and_no_cured_one_is_accused(program):
    result = hunted(program, program.cured, program.ranks[0], BY_DAY)
    assert result.finding is None, str(result.finding)
    assert result.statistics.plans == BY_DAY


@pytest.mark.parametrize("program", named([*CORRECT, *PITFALLS]))
def test_with_caches_only_packed_cells_that_are_set_are_accused(program):
    """all_to_all_v Sets its counts in one line: where that is written back, it takes others along."""
    result = hunted(program, program.cured, program.ranks[0], BY_DAY // 2, caches=True)
    if program.name == "ragged_exchange":
        assert result.finding is not None
        assert result.finding.name == "integrity/wrong_value"
    else:
        assert result.finding is None, str(result.finding)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", named([*CORRECT, *PITFALLS]))
def test_nor_is_any_in_hundreds_of_plans(program):
    for ranks in program.ranks:
        result = hunted(program, program.cured, ranks, BY_NIGHT)
        assert result.finding is None, (ranks, str(result.finding))
