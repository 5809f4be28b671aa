"""What docs/adapters.md shows is what happens: its store, its commands, its finding, its lists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.store.adapters import Adapter
from scenarios.store.adapters.black_box import _WORKLOADS, NEEDS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "adapters.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M)


def rankfault(here, line):
    name, *words = shlex.split(line)
    assert name == "rankfault"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RANKFAULT")}
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *words], cwd=here, capture_output=True, text=True,
        check=False, env={**kept, "COLUMNS": "80", "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def here(tmp_path):
    (tmp_path / "my_store.py").write_text(blocks("python")[0])
    return tmp_path


def test_the_store_and_its_adapter_are_under_30_lines():
    assert len(blocks("python")[0].splitlines()) < 30


def test_its_commands_find_what_the_page_says_and_the_seed_replays(here):
    every, one = blocks("sh")[0].splitlines()
    found = rankfault(here, every)
    assert found.returncode == 1, found.stderr
    assert blocks("text")[0] in found.stdout
    for name in _WORKLOADS:
        assert f"my_store.py::{name} " in found.stdout
    assert rankfault(here, f"{one} --plans 3").returncode == 0
    seed = found.stdout.strip().splitlines()[-1].removeprefix("next: ")
    again = rankfault(here, f"{seed} --times 3")
    assert again.returncode == 1, again.stderr
    assert again.stdout.startswith("reproduced 3 of 3 times: store/silent_corruption@MyStore:load#0")
    assert "Drawn" in again.stdout


def test_an_adapter_that_cannot_be_driven_is_one_line_of_usage(here):
    file = here / "my_store.py"
    file.write_text(file.read_text().replace("def get(", "def gets("))
    refused = rankfault(here, "rankfault hunt my_store.py")
    assert refused.returncode == 2
    assert "one of the methods get and load is missing" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_page_lists_every_promise_and_scenario():
    promises = {name for name in Adapter.__annotations__ if name != "preload"}
    assert promises == set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.M))))
    for scenario, promise in NEEDS.items():
        assert re.search(rf"`{promise}` \| `True` \| `{scenario}` is not made", PAGE)
