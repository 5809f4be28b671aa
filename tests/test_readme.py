"""What the README shows is what happens: its program, command, finding and replay are run here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PICTURE = ROOT / "docs" / "ring.svg"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.S | re.M)


def rankfault(here: Path, line: str) -> subprocess.CompletedProcess[str]:
    name, *words = shlex.split(line)
    assert name == "rankfault"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RANKFAULT")}
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *words],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "COLUMNS": "80"},
    )


@pytest.fixture
def here(tmp_path):
    (tmp_path / "ring.py").write_text(blocks("python")[0])
    return tmp_path


def test_the_program_is_under_20_lines():
    assert len(blocks("python")[0].splitlines()) < 20


def test_the_store_s_commands_do_what_they_say(here):
    lines = [line.partition("#")[0].strip() for line in blocks("sh")[3].splitlines()]
    codes = [
        rankfault(here, f"{line} {limit} --ranks 1").returncode
        for line, limit in zip(lines, ("--plans 60", "--minutes 5", "--plans 60"), strict=True)
    ]
    assert codes == [0, 0, 1]


def test_program_command_finding_and_replay(here):
    (first, hunt, replay, *_) = blocks("sh")
    assert "venv" in first
    found = rankfault(here, hunt)
    assert found.returncode == 1
    report = blocks("text")[0]
    assert report in found.stdout
    assert report.splitlines()[-1] == replay.strip()
    (picture,) = (here / "rankfault-findings").glob("ring-*/timeline.svg")
    assert picture.read_text() == PICTURE.read_text()
    again = rankfault(here, replay)
    assert again.returncode == 1
    assert again.stdout.startswith("reproduced: integrity/unwritten_memory")

    broken = (here / "ring.py").read_text()
    cured = broken.replace("    rank.notify(", "    rank.fence()\n    rank.notify(")
    assert cured != broken
    (here / "ring.py").write_text(cured)
    assert rankfault(here, hunt).returncode == 0
    gone = rankfault(here, replay)
    assert gone.returncode == 0
    assert "no longer shows" in gone.stdout


def test_the_store_example_runs(tmp_path):
    (tmp_path / "example.py").write_text(blocks("python")[1])
    told = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "10\n"), told.stderr


def test_the_script_and_the_test_of_torch_distributed(tmp_path):
    script = blocks("python")[2].replace("@distributed_test(ranks=(2, 4))\n", "")
    script = script.replace("from harness import distributed_test\n", "")
    called = 'dist.init_process_group("gloo")\ntest_everybody_has_the_sum()\n'
    (tmp_path / "train.py").write_text(script + called)
    (tmp_path / "test_sum.py").write_text(blocks("python")[2])
    lines = [line.partition("#")[0].strip() for line in blocks("sh")[4].splitlines()]
    limits = ("", " --plans 12", "")
    assert [rankfault(tmp_path, line + limit).returncode
            for line, limit in zip(lines, limits, strict=True)] == [0, 0, 0]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sum.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_two_commands_are_where_ci_looks_for_them():
    """.ci/run takes the lines that begin so, and wants two."""
    lines = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv && ")]
    assert lines == [
        "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e . && "
        ".venv/bin/rankfault hunt",
        "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e '.[test]' && "
        ".venv/bin/pytest",
    ]
    assert "\n".join(lines) + "\n" == blocks("sh")[0]


def test_every_command_that_the_readme_names_exists(cli):
    named = set(re.findall(r"`rankfault ([a-z]+)", README))
    assert named >= {"hunt", "replay", "seeds", "list"}
    for command in named:
        assert cli(command, "--help")[0] == 0
