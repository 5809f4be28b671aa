"""docs/processes.md: its program and its command do what the page says."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from harness.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "processes.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M)


def test_the_program_prints_what_is_said():
    (program,) = blocks("python")
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(program, "processes.md", "exec"), {})
    verdict, dead, *lost = told.getvalue().replace("[", "").replace("]", "").split()
    assert f"{verdict} [{dead}]" in PAGE
    assert sorted(rank.strip(",") for rank in lost) == ["0", "2", "3"]


def test_the_command_confirms(capsys):
    (command,) = blocks("sh")
    name, *words = shlex.split(command)
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert name == "rankfault"
    assert caught.value.code == 1
    assert capsys.readouterr().out.startswith("confirmed with emulated delay 10 of 10")
