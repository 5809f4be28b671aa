"""`rankfault matrix`: exit codes, output, page, processes, Ctrl-C, a worker that dies."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli.matrix import exit_code
from harness.matrix import Row
from harness.workers import Died

RING = """\
import dataclasses
import torch
from harness import mutant, scenario, values

def reference(size):
    return [values((rank - 1) % size, 2) for rank in range(size)]

def order(rank):
    rank.fence()

@scenario(reference=reference, ranks=(1, 3), bug_faults={"dropped_fence": "DECLARED"})
def ring(rank):
    inbox = rank.window("inbox", 2, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(inbox, right, values(rank.index, 2))
    order(rank)
    rank.notify(flag, right, 0, 1)
    rank.wait(flag, 0, 1)
    return rank.load(inbox, 0, 2)

@mutant(of=order, expects="integrity/unwritten_memory", ranks=1)
def planted(rank):
    '''A bug, or none.'''
    PLANTED

ring = dataclasses.replace(ring, mutants={"planted": planted})
"""
QUICK = ["--plans", "8", "--root-seeds", "2"]
GETS = {"1": "getpid", "2": "getppid"}  # where the command's process is, from the program's


def ring(planted: str = "pass", declared: str = "integrity/unwritten_memory") -> str:
    return RING.replace("PLANTED", planted).replace("DECLARED", declared)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("RANKFAULT_ROOT_SEED", "RANKFAULT_HOME"):
        monkeypatch.delenv(name, raising=False)
    # Versions of user.py share a module name: a cached one would find the mutants of another.
    monkeypatch.setattr("harness.registry._loaded", {})
    Path("user.py").write_text(ring())


@pytest.fixture
def cli(capsys, no_progress):
    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["matrix", *words])
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return call


def test_all_caught_ends_with_0(cli):
    code, out, err = cli("user.py", "--jobs", "1", *QUICK)
    assert (code, err) == (0, "")
    assert out.startswith("user.py::ring\n  mutant ")
    assert "1 mutant and 1 (scenario, bug fault) pair in 1 scenario: 2 caught, 0 survivors" in out
    assert "not in it, because not declared: " in out


def test_a_survivor_is_printed_first_and_ends_with_1(cli):
    Path("user.py").write_text(ring(planted="rank.fence()"))
    code, out, err = cli("user.py", "--jobs", "1", *QUICK)
    assert (code, err) == (1, "")
    assert out.startswith("Survivors: 1\n  user.py::ring mutant planted: missed by 2 of 2 root seeds")
    command = out.splitlines()[3].strip()
    assert command == "rankfault hunt user.py::ring --bug planted --root-seed 0 --plans 8"
    with pytest.raises(SystemExit) as hunted:
        main(command.split()[1:])
    assert hunted.value.code == 0


def test_a_false_alarm_ends_with_1(cli):
    Path("user.py").write_text(ring().replace("    order(rank)\n", ""))
    code, out, _ = cli("user.py", "--jobs", "1", *QUICK)
    assert code == 1
    assert "False alarms: 1\n  user.py::ring twin: integrity/unwritten_memory after 2 plans" in out
    data = json.loads(cli("user.py", "--jobs", "1", "--json", *QUICK)[1])
    assert data["false_alarms"] == 1


def test_an_equivalent_that_is_none_ends_with_1(cli):
    Path("user.py").write_text(ring(declared="equivalent: it is not"))
    code, out, _ = cli("user.py", "--jobs", "1", *QUICK)
    assert code == 1
    assert out.startswith("Not as declared: 1\n  user.py::ring equivalent dropped_fence: not equivalent:")
    replay = out.splitlines()[3].split()
    assert replay[:2] == ["rankfault", "replay"]
    with pytest.raises(SystemExit) as replayed:
        main(replay[1:])
    assert replayed.value.code == 1


def test_json_and_page_hold_the_same_rows_whatever_the_number_of_processes(cli):
    code, out, err = cli("user.py", "--jobs", "1", "--json", "--html", "one.html", *QUICK)
    assert code == 0
    one = json.loads(out)
    assert err.startswith("user.py::ring\n")
    assert err.endswith("page: one.html\n")
    code, out, _ = cli("user.py", "--jobs", "2", "--json", "--html", "two.html", *QUICK)
    two = json.loads(out)
    assert (code, one["survivors"], one["false_alarms"]) == (0, 0, 0)
    for row in one["rows"] + two["rows"]:
        assert row.pop("seconds") >= 0
    assert one == two
    assert Path("one.html").read_text() == Path("two.html").read_text()
    assert [(row["kind"], row["status"]) for row in one["rows"]] == [
        ("mutant", "caught"), ("fault", "caught"), ("twin", "clean")
    ]


def test_other_root_seeds(cli):
    data = json.loads(cli("user.py", "--jobs", "1", "--json", "--root-seed", "7", *QUICK)[1])
    assert {tuple(row["root_seeds"]) for row in data["rows"]} == {(7, 8)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["collectives.barier"], "did you mean 'collectives.barrier'?"),
        (["none.py"], "none.py: No such file"),
        (["--root-seeds", "0"], "--root-seeds"),
        (["--root-seed", "-1"], "--root-seed"),
        (["--plans", "0"], "--plans"),
        (["--plans", "x"], "--plans"),
        (["--jobs", "0"], "--jobs"),
        (["--html", "no/page.html"], "--html no/page.html: there is no folder no"),
        (["--html", "."], "--html .: is a folder"),
        (["--nope"], "--nope"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(cli, words, said):
    code, out, err = cli(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_narrow_terminal_gets_narrow_lines(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    _, out, _ = cli("user.py", "--jobs", "1", *QUICK)
    assert max(map(len, out.splitlines())) <= 50


def test_exit_codes():
    def made(*statuses):
        return [Row(kind="twin", scenario="s", name="", status=status) for status in statuses]

    assert exit_code(made("clean", "caught", "equivalent")) == 0
    assert exit_code(made("caught", "unknown")) == 4
    assert exit_code(made("caught", "not_run")) == 4
    for status in ("survived", "false_alarm", "misdeclared"):
        assert exit_code(made("unknown", status)) == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_gives_what_there_is_and_130(cli, jobs):
    """The program itself sends the command a Ctrl-C, once."""
    stop = "import contextlib, os, signal\n    with contextlib.suppress(FileExistsError):\n"
    stop += "        os.close(os.open('sent', os.O_CREAT | os.O_EXCL))\n"
    stop += f"        os.kill(os.{GETS[jobs]}(), signal.SIGINT)\n    rank.fence()"
    Path("user.py").write_text(ring().replace("    rank.fence()", f"    {stop}"))
    code, out, err = cli("user.py", "--jobs", jobs, "--plans", "1000000")
    assert (code, err) == (130, "")
    missing = int(out.removeprefix("Not run: ")[0])
    assert out.startswith(f"Not run: {missing}\n  stopped with Ctrl-C before it was done\n")
    assert out.endswith(f"stopped with Ctrl-C; {3 - missing} of 3 rows are there\n")
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_an_unknown_row_and_the_others_go_on(cli, monkeypatch):
    def some_die(function, calls, jobs, on_wait):
        for index, call in enumerate(calls):
            on_wait()
            yield index, Died(-9) if call[0].kind == "mutant" else function(*call)

    monkeypatch.setattr("harness.cli.matrix.spread", some_die)
    code, out, err = cli("user.py", "--jobs", "2", *QUICK)
    assert (code, err) == (4, "")
    assert out.startswith(
        "UNKNOWN: 1\n  user.py::ring mutant planted: the process was killed by SIGKILL\n"
        "    rankfault hunt user.py::ring --bug planted\n"
    )
    assert "1 mutant and 1 (scenario, bug fault) pair in 1 scenario: 1 caught, 0 survivors" in out


def test_piped_output_has_no_control_characters(cli, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.setattr("harness.cli.progress.PLAIN_SECONDS", 0.0)
    _, out, err = cli("user.py", "--jobs", "1", *QUICK)
    assert all(line.isprintable() for line in (out + err).splitlines())
    assert err.splitlines()[-1].startswith("matrix  3 of 3 rows  ")
