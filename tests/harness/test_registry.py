"""Finding things by name, and users' files: what is wrong with one is said in one line."""

from __future__ import annotations

import pytest

from harness import Plan, registry, run
from harness.errors import UnknownName, UsageError, UserFileError
from harness.plan import Fault
from harness.scenario import Mutant, Scenario

GOOD = '''
from harness import scenario

@scenario(reference=lambda size: [0] * size)
def alone(rank):
    """Does nothing."""
    return 0
'''
TWO = GOOD + "\nother = alone\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(folder, text, name="mine.py"):
    (folder / "mine.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    return registry.find(name)


def refused(error, name, *words):
    with pytest.raises(error) as caught:
        registry.find(name)
    text = str(caught.value)
    assert isinstance(caught.value, UsageError)
    assert "\n" not in text
    for word in words:
        assert word in text, text


def test_a_scenario_of_a_file(folder):
    found = load(folder, GOOD)
    assert (found.name, found.doc) == ("mine.py::alone", "Does nothing.")
    assert found == load(folder, GOOD, "mine.py::alone")
    assert len(found.digest) == 16


def test_a_file_in_a_folder(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "mine.py").write_text(GOOD)
    assert registry.find("deep/mine.py").name == "deep/mine.py::alone"
    assert registry.find("./deep/mine.py::alone").name == "deep/mine.py::alone"


def test_an_edited_file_is_read_again_however_quickly(folder):
    before = load(folder, GOOD)
    after = load(folder, GOOD.replace("nothing", "no work"))
    assert after.doc == "Does no work."
    assert after.digest != before.digest
    assert load(folder, GOOD).doc == "Does nothing."
    assert load(folder, GOOD.replace("nothing", "naught!")).doc == "Does naught!."
    assert not list(folder.glob("__pycache__")), "nothing is written beside the user's file"


def test_missing_absolute_and_upward_paths(folder):
    refused(UserFileError, "nowhere.py", "nowhere.py", "No such file")
    refused(UserFileError, "nowhere.py::x", "nowhere.py", "No such file")
    refused(UserFileError, str(folder / "mine.py"), "must lie below the working directory")
    refused(UserFileError, "../mine.py", "must lie below the working directory")
    refused(UserFileError, "a/../../mine.py::x", "must lie below the working directory")
    (folder / "dir.py").mkdir()
    refused(UserFileError, "dir.py", "dir.py", "directory")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ny = (\n", ("mine.py:2:", "'(' was never closed")),
        (
            "x = 1\nimport no_such_module_anywhere\n",
            ("mine.py:2: ModuleNotFoundError", "no_such_module"),
        ),
        ("\n\nraise ValueError('two\\nlines')\n", ("mine.py:3: ValueError: two lines",)),
        ("def f():\n    1 / 0\nf()\n", ("mine.py:2: ZeroDivisionError",)),
        ("import sys\nsys.exit(7)\n", ("mine.py:2: SystemExit: 7",)),
        ("import json\njson.loads('{')\n", ("mine.py:2: JSONDecodeError",)),
        ("x = 1\n", ("mine.py", "no scenario in it", "@scenario")),
        ("", ("mine.py", "no scenario in it")),
        (b"x = '\xff'\n", ("mine.py",)),
        (b"x = 1\x00\n", ("mine.py",)),
        (TWO, ("mine.py", "alone, other", "mine.py::NAME")),
        (
            "from harness import scenario\n"
            "@scenario(reference=lambda size: [])\n"
            "def f(rank, n=3):\n"
            "    pass\n",
            ("mine.py:2: UsageError", "parameter 'n' needs an annotation"),
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(folder, text, words):
    (folder / "mine.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(UserFileError, "mine.py", *words)
    refused(UserFileError, "mine.py", *words)


def test_an_unknown_name_in_a_file_offers_the_nearest(folder):
    load(folder, TWO, "mine.py::other")
    refused(UnknownName, "mine.py::alnoe", "no scenario in mine.py is called 'alnoe'", "'alone'")


def test_a_file_that_failed_can_be_mended(folder):
    refused(UserFileError, "mine.py", "No such file")
    (folder / "mine.py").write_text("1 / 0")
    refused(UserFileError, "mine.py", "ZeroDivisionError")
    assert load(folder, GOOD).name == "mine.py::alone"


def test_registered_things_are_what_they_say():
    assert all(isinstance(found, Scenario) for found in registry.scenarios().values())
    assert all(issubclass(found, Fault) for found in registry.faults().values())
    assert list(registry.faults()) == sorted(registry.faults())
    for name, found in registry.scenarios().items():
        assert name == found.name
        assert registry.find(name) is found
        for each in found.mutants.values():
            assert isinstance(each, Mutant)
            assert registry.mutant_of(found, each.name) is each
        assert registry.mutant_of(found, None) is None


def test_every_mutant_belongs_to_a_scenario():
    assert set(registry._mutants()) <= set(registry.scenarios())


def test_unknown_names_offer_the_nearest_valid_one(folder):
    with pytest.raises(UnknownName, match="no scenario is called 'nonsense'"):
        registry.find("nonsense")
    with pytest.raises(UnknownName, match=r"no mutant of mine.py::alone is called 'x'"):
        registry.mutant_of(load(folder, GOOD), "x")


PLANTED = '''
import torch
from harness import World
from harness.scenario import Scenario, mutant

def told(rank):
    return torch.zeros(1)

def program(rank):
    return told(rank)

@mutant(of=told, expects="integrity/wrong_value", ranks=1)
def wrong(rank):
    """One. Finding: integrity/wrong_value. Smallest world: 1."""
    return torch.ones(1)

def host(world, params):
    for index in range(world.size):
        world.dispatch(program, device=index)

one = Scenario(name="one", host=host, mutants={"wrong": wrong},
               reference=lambda params, size: {"result": [torch.zeros(1)] * size})
'''


def test_a_mutant_is_planted_into_its_own_version_of_the_file(folder):
    first = load(folder, PLANTED)
    load(folder, PLANTED + "\n# edited\n")
    plan = Plan(scenario=first.name, params=first.params(), ranks=1, bug="wrong")
    assert [f.name for f in run(plan, scenario=first).findings] == ["integrity/wrong_value"]
    again = load(folder, PLANTED)
    assert [f.name for f in run(plan, scenario=again).findings] == ["integrity/wrong_value"]


def test_a_dict_of_scenarios_counts_as_its_items(folder):
    load(folder, GOOD + "\nsome = {'first': alone, 'n': 3}\ndel alone\n", "mine.py::first")
    assert [one.name for one in registry.find_all("mine.py")] == ["mine.py::first"]
