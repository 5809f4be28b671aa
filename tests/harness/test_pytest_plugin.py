"""The pytest plugin in sessions of their own: profiles, root seed, header, timeouts."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"

PLANS = """
import json, pathlib
from hypothesis import given, settings, strategies as st

drawn = []

@settings(max_examples=30)
@given(st.integers(0, 10**9))
def test_draws(number):
    drawn.append(number)

def test_writes_them_down(rankfault_root_seed):
    pathlib.Path("drawn.json").write_text(json.dumps([rankfault_root_seed, drawn[1:20]]))
"""

STUCK = """
import torch
from harness import Plan, run, scenario

@scenario(reference=lambda size: [None] * size)
def stuck(rank):
    cells = rank.window("cells", 1, torch.int32)
    if rank.index == 0:
        while True:  # line 8
            pass
    rank.wait(cells, 0, 1)  # line 10

def test_stuck():
    run(Plan(scenario="stuck", params=stuck.params(), ranks=2), scenario=stuck)
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """Runs pytest in a process of its own, without xdist unless asked."""
    monkeypatch.delenv("RANKFAULT_ROOT_SEED", raising=False)

    def go(*args, workers=0):
        more = () if workers else ("-p", "no:xdist")
        return pytester.runpytest_subprocess(*more, "-p", "no:cacheprovider", *args)

    return go


def drawn(pytester):
    return (pytester.path / "drawn.json").read_text()


def test_two_nights_differ_unless_the_root_seed_is_the_same(session, pytester, monkeypatch):
    monkeypatch.setenv("CI", "true")  # Hypothesis would derandomise by itself
    pytester.makepyfile(PLANS)
    nights = []
    for root_seed in ("1", "2", "1"):
        result = session("--rankfault-profile", "nightly", "--rankfault-root-seed", root_seed)
        result.assert_outcomes(passed=2)
        nights.append(drawn(pytester))
    assert nights[0] == nights[2]
    assert nights[0] != nights[1]


@pytest.mark.nightly
def test_two_nights_without_a_root_seed_differ(session, pytester, monkeypatch):
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(PLANS)
    session("--rankfault-profile", "nightly").assert_outcomes(passed=2)
    first = drawn(pytester)
    session("--rankfault-profile", "nightly").assert_outcomes(passed=2)
    assert drawn(pytester) != first


def test_the_ci_profile_draws_the_same_whatever_the_root_seed(session, pytester):
    pytester.makepyfile(PLANS)
    session("--rankfault-profile", "ci").assert_outcomes(passed=2)
    first = drawn(pytester)
    session("--rankfault-profile", "ci", "--rankfault-root-seed", "5").assert_outcomes(passed=2)
    assert first.startswith("[0, ")
    assert drawn(pytester) == first.replace("[0, ", "[5, ", 1)
    assert not (pytester.path / ".hypothesis" / "examples").exists()


def test_the_dev_profile_keeps_a_database(session, pytester):
    pytester.makepyfile("""
        from hypothesis import given, strategies as st

        @given(st.integers())
        def test_small(number):
            assert number < 100
    """)
    session("--rankfault-profile", "dev").assert_outcomes(failed=1)
    assert list((pytester.path / ".hypothesis" / "examples").rglob("*"))


def test_the_root_seed_is_in_the_header_and_comes_from_the_environment(
    session, pytester, monkeypatch
):
    pytester.makepyfile(PLANS)
    monkeypatch.setenv("RANKFAULT_ROOT_SEED", "77")
    result = session("--rankfault-profile", "nightly")
    result.stdout.fnmatch_lines(["rankfault: root seed 77, profile nightly"])
    assert drawn(pytester).startswith("[77, ")


def test_every_worker_has_the_root_seed_of_the_controller(session, pytester):
    pytester.makepyfile("""
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(6))
        def test_write(number, rankfault_root_seed, worker_id):
            pathlib.Path(f"{worker_id}-{number}.txt").write_text(str(rankfault_root_seed))
    """)
    result = session("--rankfault-profile", "nightly", "-n", "2", workers=2)
    result.assert_outcomes(passed=6)
    written = list(pytester.path.glob("gw*.txt"))
    assert {file.name.split("-")[0] for file in written} == {"gw0", "gw1"}
    seeds = {file.read_text() for file in written}
    assert len(seeds) == 1
    result.stdout.fnmatch_lines([f"rankfault: root seed {seeds.pop()}, profile nightly"])


@pytest.mark.parametrize(("variable", "args", "message"), [
    ("x7", (), "*RANKFAULT_ROOT_SEED: 'x7' is not a whole number*"),
    ("", ("-o", "rankfault_profile=weekly"), "*'weekly'; choose one of: dev, ci, nightly*"),
])
def test_bad_values_are_usage_errors(session, pytester, monkeypatch, variable, args, message):
    monkeypatch.setenv("RANKFAULT_ROOT_SEED", variable)
    result = session(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_session_that_does_not_use_it_pays_nothing(session, pytester):
    pytester.makepyfile("""
        import sys
        from hypothesis import settings

        def test_light():
            assert "harness.pytest_plugin" in sys.modules
            assert "torch" not in sys.modules
            assert "harness.run" not in sys.modules
            assert not settings.get_current_profile_name().startswith("rankfault")
    """)
    result = session()
    result.assert_outcomes(passed=1)
    assert "rankfault: root seed" not in result.stdout.str()


def test_the_front_door_opens_without_torch_and_holds_every_name():
    code = (
        "import sys, harness; assert 'torch' not in sys.modules\n"
        "import harness.run, harness.scenario\n"
        "missing = [n for n in harness.__all__ if getattr(harness, n, None) is None]\n"
        "assert not missing, missing\n"
        "assert callable(harness.run) and callable(harness.scenario)\n"
        "assert not hasattr(harness, 'nonsense')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("method", ["signal", pytest.param("thread", marks=pytest.mark.nightly)])
def test_a_timeout_prints_plan_and_positions_before_the_stacks(session, pytester, method):
    pytester.makepyfile(STUCK)
    result = session(
        "--rankfault-profile", "ci", "--timeout", "5", "--timeout-method", method
    )
    assert result.ret != 0
    result.stdout.fnmatch_lines([
        '*plan in flight: {"format":1,"scenario":"stuck","ranks":2,*',
        "*rank 0: is running at *test_a_timeout*.py:* in stuck",
        "*rank 1: is blocked in wait on window 0, peer 1, bytes 0..4 at *.py:10 in stuck",
        "*Stack of *",
    ])
    lines = result.stdout.lines
    running = next(line for line in lines if "rank 0: is running at" in line)
    assert ":8 in" in running or ":9 in" in running


def test_a_timeout_of_a_worker_prints_them_too(session, pytester):
    pytester.makepyfile(STUCK)
    result = session(
        "--rankfault-profile", "ci", "--timeout", "5", "--timeout-method", "thread", "-n", "1",
        workers=1,
    )
    assert result.ret != 0
    result.stderr.fnmatch_lines(["plan in flight: *", "*rank 1: is blocked in wait*:10 in stuck"])


@pytest.mark.nightly
def test_a_timeout_outside_a_run_prints_the_stacks_alone(session, pytester):
    pytester.makepyfile("""
        import harness.run, time

        def test_slow():
            time.sleep(1000)
    """)
    result = session("--rankfault-profile", "ci", "--timeout", "5")
    result.assert_outcomes(failed=1)
    assert "plan in flight" not in result.stdout.str()
    assert "Timeout (>5" in result.stdout.str()


def test_nightly_tests_are_skipped_with_the_reason_unless_asked_for(session, pytester):
    pytester.makeini("[pytest]\nmarkers =\n    gpu: x\n    nightly: x\n")
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile("""
        import pytest

        @pytest.mark.nightly
        def test_long():
            pass

        def test_short():
            pass
    """)
    result = session("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*too long for the default run: --rankfault-profile nightly*"])
    session("-m", "nightly").assert_outcomes(passed=1, deselected=1)
    asked = session("--rankfault-profile", "nightly", "--rankfault-root-seed", "1")
    asked.assert_outcomes(passed=2)
