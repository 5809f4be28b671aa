"""Scenarios that this machine cannot run: named by everything, run by nothing, and nothing is proven."""

from pathlib import Path

import pytest

from harness import Plan, run
from harness.cli import main
from harness.corpus import encode_file, missing, read, replay, seed_of, write
from harness.errors import NotHere
from harness.registry import find

FILE = """\
from harness import Scenario, scenario
from dataclasses import replace

def reference(size):
    return [1 for _ in range(size)]

@scenario(reference=reference, ranks=(1, 1))
def program(rank):
    return VALUE

there = replace(program, subject=lambda: "a_store VERSION", unavailable=lambda: "MISSING")
here = replace(program)
del program
"""


@pytest.fixture
def given(tmp_path, monkeypatch, capsys):
    """Write mine.py, and call the command line beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def make(value=2, reason="", version="1.0"):
        text = FILE.replace("VALUE", str(value)).replace("MISSING", reason).replace("VERSION", version)
        Path("mine.py").write_text(text)

    def call(*words):
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        return (caught.value.code, *capsys.readouterr())

    make.call = call
    return make


def kept(given):
    """The seed of a wrong result of mine.py::there."""
    given()
    scenario = find("mine.py::there")
    outcome = run(Plan(scenario=scenario.name, params=scenario.params(), ranks=1))
    seed = seed_of("store", outcome, outcome.findings[0], scenario)
    write(Path("seeds/store.json"), seed)
    return seed


def test_a_run_says_what_is_missing(given):
    given(reason="a_store is not installed")
    with pytest.raises(NotHere, match=r"^mine.py::there cannot run here: a_store is not installed$"):
        run(Plan(scenario="mine.py::there", params=find("mine.py::there").params(), ranks=1))


def test_a_seed_knows_the_version_and_tells_another_one(given):
    seed = kept(given)
    assert seed.origin.subject == "a_store 1.0"
    assert b'"subject": "a_store 1.0"' in encode_file(seed)
    given(version="1.1")
    warnings = replay(seed, "seeds/store.json").warnings
    assert "seeds/store.json: it was found in a_store 1.0; here is a_store 1.1" in warnings
    assert missing(seed) == ""


def test_a_seed_without_its_subject_is_neither_reproduced_nor_cured(given):
    kept(given)
    given(reason="a_store is not installed")
    assert missing(read(Path("seeds/store.json"))) == "a_store is not installed"
    code, said, _ = given.call("seeds", "list")
    assert code == 0
    assert "open: integrity/" in said
    assert "(not run here: a_store is not installed)" in " ".join(said.split())
    code, said, told = given.call("replay", "seeds/store.json")
    assert (code, said) == (4, "")
    assert told == "rankfault: mine.py::there cannot run here: a_store is not installed\n"
    assert given.call("seeds", "fix", "store")[0] == 4
    assert read(Path("seeds/store.json")).status == "open"


def test_a_hunt_leaves_it_out_and_says_so(given):
    given(value=1, reason="a_store is not installed")
    code, said, told = given.call("hunt", "mine.py", "--plans", "2")
    assert code == 0
    assert "mine.py::here" in said
    assert told == "left out: mine.py::there cannot run here: a_store is not installed\n"
    code, said, told = given.call("hunt", "mine.py::there", "--plans", "2")
    assert (code, said) == (4, "")
    assert "mine.py::there cannot run here: a_store is not installed" in told


def test_pytest_skips_its_seed_with_the_reason(given, pytester):
    kept(given)
    given(reason="a_store is not installed")
    for name in ("mine.py", "seeds/store.json"):
        target = pytester.path / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(Path(name).read_text())
    pytester.makeini("[pytest]\nrankfault_seeds = seeds\n")
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*mine.py::there cannot run here: a_store is not installed*"])
