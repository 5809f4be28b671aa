"""Seed files as tests: the corpus first, open and fixed seeds, replay with the CLI's report."""

import json

import pytest

from harness import Hold, Plan, corpus, run
from harness.report.text import report

RING = '''
from typing import Annotated
import torch
from msgspec import Meta
from harness import scenario, values

@scenario(reference=lambda size, n: [values((r - 1) % size, n) for r in range(size)])
def ring(rank, n: Annotated[int, Meta(ge=1, le=64)] = 4):
    data = rank.window("data", n, torch.float32)
    cells = rank.window("cells", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(data, right, values(rank.index, n))
    {fence}
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(data, 0, n)
'''


LATE_PUT = Hold(0)


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with a scenario, a test and an empty corpus; `go` runs pytest there."""
    monkeypatch.delenv("RANKFAULT_ROOT_SEED", raising=False)
    pytester.makeini("[pytest]\nrankfault_seeds = seeds\ntestpaths = tests\n")
    (pytester.mkdir("tests") / "test_other.py").write_text("def test_other():\n    pass\n")
    pytester.mkdir("seeds")
    program(pytester, fenced=False)
    return pytester


def program(pytester, *, fenced):
    fence = "rank.fence()" if fenced else "pass"
    # A user's file is imported once for its path and content: no two tests have the same.
    text = f"# {pytester.path.name}\n" + RING.replace("{fence}", fence).lstrip()
    (pytester.path / "ring.py").write_text(text)


def go(pytester, *args):
    return pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider", "-v", *args)


def seed(pytester, name, status="open", schedule=(LATE_PUT,)):
    """Write a seed of the missing fence; returns its plan."""
    from harness import registry

    found = registry.find("ring.py::ring")
    plan = Plan(scenario=found.name, params=found.params(n=1), ranks=2, schedule=(Hold(0),))
    outcome = run(plan, scenario=found, races=True)
    made = corpus.seed_of(name, outcome, outcome.findings[0], found)
    path = pytester.path / "seeds" / f"{name}.json"
    data = json.loads(corpus.encode_file(made))
    data["status"] = status
    data["plan"]["schedule"] = [{"kind": "hold", "op": d.op, "until": d.until} for d in schedule]
    path.write_text(json.dumps(data, indent=2))
    return plan, outcome, found


def test_the_corpus_runs_first_while_the_bug_is_there(project):
    seed(project, "open")
    seed(project, "back", status="fixed")
    (project.path / "seeds" / "broken.json").write_text('{"rankfault": 1,\n "name":')
    result = go(project)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines([
        "seeds/back.json::back FAILED*",
        "seeds/broken.json::broken FAILED*",
        "seeds/open.json::open PASSED*",
        "*test_other PASSED*",
        "*marked as fixed, but*is back*",
        "*FAIL integrity/unwritten_memory in ring.py::ring*",
        "*rankfault replay seeds/back.json*",
        "*broken.json:2:*cut off*",
    ])
    assert "Traceback" not in result.stdout.str()


def test_the_corpus_when_the_bug_is_cured(project):
    seed(project, "cured")
    seed(project, "was", status="fixed")
    seed(project, "stale", status="fixed", schedule=(Hold(99),))
    program(project, fenced=True)
    result = go(project)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines([
        "seeds/cured.json::cured FAILED*",
        "seeds/stale.json::stale FAILED*",
        "seeds/was.json::was PASSED*",
        "*seeds/cured.json*cured? run `rankfault seeds fix cured`*",
        "*stale: 1 of 1 deviations took no effect*",
    ])


@pytest.mark.nightly
def test_with_paths_only_the_seeds_under_them_run(project):
    seed(project, "one")
    seed(project, "two")
    result = go(project, "tests", "seeds/two.json")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["seeds/two.json::two PASSED*", "*test_other PASSED*"])


@pytest.mark.nightly
def test_globs_and_missing_files(project):
    seed(project, "a1")
    seed(project, "b1")
    project.makeini("[pytest]\nrankfault_seeds = seeds/a*.json\ntestpaths = tests\n")
    go(project).assert_outcomes(passed=2)
    project.makeini("[pytest]\nrankfault_seeds = seeds/none.json\ntestpaths = tests\n")
    result = go(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*rankfault_seeds: seeds/none.json: no such seed file*"])


def test_replay_runs_one_plan_alone_and_fails_with_the_cli_s_report(project):
    plan, outcome, found = seed(project, "mine")
    result = go(project, "--rankfault-replay", corpus.token_of(plan))
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    begin = shown.index("FAIL integrity/unwritten_memory in")
    expected = report(outcome, outcome.findings[0], found)
    assert shown[begin : begin + len(expected)] == expected


def test_replay_of_a_cured_plan_passes(project):
    seed(project, "mine")
    program(project, fenced=True)
    go(project, "--rankfault-replay", "seeds/mine.json").assert_outcomes(passed=1)


def test_replay_of_nonsense_is_one_line(project):
    result = go(project, "--rankfault-replay", "seeds/none.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*none.json: No such file or directory*"])
