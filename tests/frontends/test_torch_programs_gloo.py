"""The programs of torch_programs/ on real gloo, and the two tables that say what their defects look like.

By day: the quick correct programs and three rows of the README's table. At night: all, every world size.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SLOW = {"ddp_step", "fsdp_step", "functional_collectives"}  # 2 s and more: they import half of torch
CHEAP = {"metric_order", "gradient_norm", "transposed_weight"}
# Correct programs that DETAIL refuses, and what it says of them (docs/torch.md says why).
REFUSED = {
    "ddp_step": "Segmentation fault",
    "staged_start": "Collectives differ in the following aspects: \t Sequence number",
    "first_come": "Collectives differ in the following aspects: \t Sequence number",
}
nightly = [pytest.mark.nightly, pytest.mark.timeout(300)]

with pytest.MonkeyPatch.context() as patch:  # also the ranks' processes find the module by this path
    patch.setattr(sys, "path", [str(HERE), *sys.path])
    gloo_worlds = importlib.import_module("gloo_worlds")
CORRECT = gloo_worlds.programs("correct")
DEFECTIVE = gloo_worlds.programs("defective")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(HERE), *sys.path])


def rows(text):
    """{program: the other cells} of every table row that holds a program's name in brackets."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"\| [^|]*\(`(\w+)`\) \|(.*)\|$", line)
        if match:
            assert match[1] not in found, f"{match[1]} has two rows"
            found[match[1]] = [cell.strip() for cell in match[2].split("|")]
    return found


README = rows((ROOT / "README.md").read_text())
SAID = rows((ROOT / "docs" / "torch.md").read_text())


def cured(program, folder):
    path = folder / f"{program.name}_cured.py"
    path.write_text(program.cured)
    return path


def fits(cell, world, right):
    """Whether one of the cell's outcomes (`silent, wrong or error`) is the world's."""
    for outcome in cell.split(" or "):
        kind, _, wrong = outcome.partition(", ")
        assert kind in ("silent", "error", "time-out", "abort", "hang"), cell
        assert wrong in ("", "wrong"), cell
        if world.outcome == kind and not (wrong and world.printed == right):
            return True
    return False


def selected(programs, by_day):
    return [
        pytest.param(program, id=program.name, marks=[] if by_day(program) else nightly)
        for program in programs
    ]


def test_there_is_a_program_for_everything_that_is_looked_for():
    assert len(CORRECT) >= 15
    assert {kind for program in DEFECTIVE for kind in program.expects} >= {
        "different_collective", "different_order", "different_reduce_op", "different_shape",
        "different_dtype", "different_root", "different_group", "different_splits",
        "different_message_size", "different_message_dtype", "send_recv_cycle", "missing_collective",
        "changed_in_flight", "read_in_flight", "dropped_handle", "schedule_dependent_result",
        "non_member_call",
    }


@pytest.mark.parametrize("program", [*CORRECT, *DEFECTIVE], ids=lambda program: program.name)
def test_programs_are_plain_scripts_of_less_than_60_lines(program):
    assert program.text.count("\n") < 60
    assert "harness" not in program.text
    assert bool(program.expects) == (program in DEFECTIVE)
    assert (program.cured != program.text) == (program in DEFECTIVE)
    compile(program.cured, program.name, "exec")


@pytest.mark.parametrize("program", selected(CORRECT, lambda p: p.name not in SLOW))
def test_correct_programs_pass(program, tmp_path):
    world = gloo_worlds.ran(program.path, program.ranks[-1], tmp_path)
    assert world.outcome == "silent", world.told
    assert len(world.printed) == program.ranks[-1]


@pytest.mark.parametrize("program", selected([*CORRECT, *DEFECTIVE], lambda _: False))
def test_correct_and_cured_programs_pass_at_every_size(program, tmp_path):
    for ranks in program.ranks:
        world = gloo_worlds.ran(cured(program, tmp_path), ranks, tmp_path)
        assert world.outcome == "silent", (ranks, world.told)


@pytest.mark.parametrize("program", selected([*CORRECT, *DEFECTIVE], lambda _: False))
def test_detail_passes_correct_programs_but_for_these(program, tmp_path):
    world = gloo_worlds.ran(cured(program, tmp_path), program.ranks[-1], tmp_path, detail=True)
    if program.name in REFUSED:
        assert world.outcome in ("error", "abort")
        assert REFUSED[program.name] in world.told, world.told
    else:
        assert world.outcome == "silent", world.told


def test_every_defect_has_its_rows():
    names = {program.name for program in DEFECTIVE}
    assert set(README) == names
    assert set(SAID) <= names


@pytest.mark.parametrize("program", selected(DEFECTIVE, lambda p: p.name in CHEAP))
def test_the_table_in_the_readme_is_what_happens(program, tmp_path):
    ranks = program.ranks[-1]
    right = gloo_worlds.ran(cured(program, tmp_path), ranks, tmp_path)
    assert right.outcome == "silent", right.told
    plain, detail, _ = README[program.name]
    for cell, with_detail in ((plain, False), (detail, True)):
        world = gloo_worlds.ran(program.path, ranks, tmp_path, detail=with_detail)
        assert fits(cell, world, right.printed), (cell, world.outcome, world.printed, world.told)
        for said in re.findall(r"`(.+?)`", SAID.get(program.name, ["", ""])[with_detail]):
            assert said in world.told, (said, world.told)


def test_a_table_cell_can_be_wrong():
    world = gloo_worlds.World([gloo_worlds.Ending(0, "rank 0: 1")], 0.1)
    assert fits("silent", world, ["rank 0: 2"])
    assert fits("error or silent, wrong", world, ["rank 0: 2"])
    assert not fits("silent, wrong", world, ["rank 0: 1"])
    assert not fits("error or time-out", world, ["rank 0: 2"])
