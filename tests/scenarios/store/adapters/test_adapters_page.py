"""What docs/adapters.md shows is what happens: its store, its commands, its finding, its lists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from harness.cli import main
from scenarios.store.adapters import Adapter
from scenarios.store.adapters.black_box import _WORKLOADS, NEEDS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "adapters.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M)


@pytest.fixture
def rankfault(here, capsys, monkeypatch):
    """Exit code, output and errors of a command line, run in the folder of the page's store."""
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("RANKFAULT_ROOT_SEED", "RANKFAULT_HOME"):
        monkeypatch.delenv(name, raising=False)

    def call(line):
        name, *words = shlex.split(line)
        assert name == "rankfault"
        with pytest.raises(SystemExit) as caught:
            main(words)
        return (caught.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def here(tmp_path):
    (tmp_path / "my_store.py").write_text(blocks("python")[0])
    return tmp_path


def test_the_store_and_its_adapter_are_under_30_lines():
    assert len(blocks("python")[0].splitlines()) < 30


def test_its_commands_find_what_the_page_says_and_the_seed_replays(rankfault):
    every, one = blocks("sh")[0].splitlines()
    code, said, _ = rankfault(every)
    assert code == 1
    assert blocks("text")[0] in said
    for name in _WORKLOADS:
        assert (f"my_store.py::{name} " in said) == (name != "power_cut")
    assert rankfault(f"{one} --plans 1")[0] == 0  # a kill in a dump, which later plans have, tears it
    replay = said.strip().splitlines()[-1].removeprefix("next: ")
    code, said, _ = rankfault(f"{replay} --times 3")
    assert code == 1
    assert said.startswith("reproduced 3 of 3 times: store/silent_corruption@MyStore:load#0")
    assert "Drawn" in said


def test_an_adapter_that_cannot_be_driven_is_one_line_of_usage(here, rankfault):
    file = here / "my_store.py"
    file.write_text(file.read_text().replace("def get(", "def gets("))
    code, _, said = rankfault("rankfault hunt my_store.py")
    assert code == 2
    assert "one of the methods get and load is missing" in said
    assert len(said.strip().splitlines()) == 1


def test_the_page_lists_every_promise_and_scenario():
    promises = set(Adapter.__annotations__)
    assert promises == set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.M))))
    for scenario, (promise, value) in NEEDS.items():
        (row,) = re.findall(rf"^\| `{promise}` .*", PAGE, re.M)
        assert f"`{scenario}` is not made" in row
        assert value is False or f'`"{value}"`' in row
