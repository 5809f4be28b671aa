"""`rankfault run` and `hunt` of a pld program: what they say to do next, and what they refuse."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

RING = Path(__file__).parent / "pld_programs" / "correct" / "ring_shift_put.py"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "ring.py").write_text(RING.read_text())
    (tmp_path / "typo.py").write_text(RING.read_text().replace("pld.rank(ctx)", "pld.rnak(ctx)"))


def next_words(out):
    command = out.splitlines()[-1].removeprefix("next: rankfault ")
    return shlex.split(command.partition(" --ranks")[0].partition(" --minutes")[0])


def test_the_next_hunt_is_on_the_same_devices(cli):
    code, out, _ = cli("run", "ring.py", "--as", "pld", "-d", "0,1,2")
    assert (code, out.splitlines()[0][:13]) == (0, "PASS: 3 ranks")
    for _ in range(2):  # after the run, and after a hunt: --ranks 3 is refused on other devices
        code, out, err = cli(*next_words(out), "--ranks", "3", "--plans", "1")
        assert (code, err) == (0, "")


def test_a_name_that_is_not_there_is_said_once_with_its_place(cli):
    code, out, _ = cli("run", "typo.py")
    assert code == 1
    said = "raised at typo.py:24 in push: pld.rnak is not simulated; did you mean 'rank'?"
    assert said in " ".join(out.split())


def test_ranks_that_the_arguments_do_not_name(cli):
    Path("fixed.py").write_text(RING.read_text().replace('pl.dynamic("NR")', "2"))
    for command in ("hunt", "run"):
        code, _, err = cli(command, "fixed.py", "--ranks", "3")
        assert (code, err.count("\n")) == (2, 1)
        assert "fixed.py::main" in err
        assert "arg" in err.split("fixed.py::main")[1]
    code, out, err = cli("run", "ring.py", "--ranks", "3")
    assert (code, err, out.splitlines()[0][:13]) == (0, "", "PASS: 3 ranks")


def test_a_path_that_lies_below_the_working_directory_may_be_absolute(cli, tmp_path):
    code, out, err = cli("run", str(tmp_path / "ring.py"))
    assert (code, err, out.splitlines()[0][:13]) == (0, "", "PASS: 2 ranks")
