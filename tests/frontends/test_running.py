"""`rankfault run` and `rankfault hunt` on a script, and `@distributed_test`: what a user sees."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from harness import registry
from harness.plan import Plan
from harness.run import run

SCRIPT = """\
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.full((4,), float(dist.get_rank()))
if "--skip" not in sys.argv or dist.get_rank() != 2:
    dist.all_reduce(x)
print("sum", x[0].item(), *sys.argv[1:])
dist.destroy_process_group()
"""
TESTS = """\
from typing import Annotated

import torch
import torch.distributed as dist
from msgspec import Meta

from harness import distributed_test


@distributed_test(ranks=(2, 3), plans=12)
def test_mean(n: Annotated[int, Meta(ge=1, le=16)] = 4):
    x = torch.full((n,), float(dist.get_rank()))
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert x[0] == (dist.get_world_size() - 1) / 2


@distributed_test(ranks=3, plans=12, minimise_seconds=0.5)
def test_skips():
    x = torch.ones(4)
    if dist.get_rank() != 2:
        dist.all_reduce(x)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("RANKFAULT_HOME", raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)


def test_a_script_runs_with_its_own_arguments(cli):
    code, out, err = cli("run", "train.py", "--ranks", "3", "--lr", "0.1")
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == [f"[rank {rank}] sum 3.0 --lr 0.1" for rank in range(3)]
    assert "PASS: 3 ranks" in out
    assert out.splitlines()[-1] == "next: rankfault hunt train.py '--args=--lr 0.1'"


def test_four_ranks_unless_told_otherwise_and_what_follows_two_dashes_is_the_scripts(cli):
    _, out, _ = cli("run", "train.py", "--", "--ranks", "2")
    assert out.splitlines()[0] == "[rank 0] sum 6.0 --ranks 2"


def test_a_rank_that_skips_a_collective_is_named(cli):
    code, out, _ = cli("run", "train.py", "--skip")
    assert code == 1
    assert "FAIL torch/missing_collective in train.py::__main__" in out
    assert "rank 2" in out.split("First failing rank")[1].splitlines()[1]


def test_the_json_of_a_run(cli):
    code, out, _ = cli("run", "train.py", "--skip", "--json")
    data = json.loads(out)
    assert (code, data["exit_code"], data["verdict"], data["ranks"]) == (1, 1, "FAIL", 4)
    assert data["findings"][0]["name"] == "torch/missing_collective"


def test_a_hunt_keeps_the_arguments_in_its_seed_and_replays_them(cli, tmp_path):
    code, out, _ = cli("hunt", "train.py", "--args=--skip --lr 1", "--plans", "3", "--root-seed", "1")
    assert code == 1
    (seed,) = tmp_path.glob("rankfault-findings/*/seed.json")
    assert seed.parent.name.startswith("train-")
    held = json.loads(seed.read_text())["plan"]
    assert held["params"] == {"argv": ["--skip", "--lr", "1"], "cuda": False}
    code, out, _ = cli("replay", str(seed))
    assert code == 1
    assert "torch/missing_collective" in out


def test_a_correct_script_is_hunted_without_a_finding(cli):
    code, out, _ = cli("hunt", "train.py", "--plans", "30", "--root-seed", "1")
    assert code == 0, out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nothere.py"], "nothere.py: No such file or directory"),
        (["run", "/train.py"], "/train.py: No such file or directory"),
        (["run", "collectives.barrier"], "give a Python file"),
        (["run", "train.py", "--ranks", "99"], "runs with 1..8"),
        (["run", "train.py", "--as", "tortch"], "did you mean 'torch'?"),
        (["run", "train.py", "--as", "scenario"], "train.py"),
        (["run", "broken.py"], "broken.py:2: invalid syntax"),
        (["run", "plain.py"], "say --as scenario, --as torch or --as pld"),
        (["hunt", "ring.py", "--args", "1"], "only scripts take arguments"),
        (["run", "several.py"], "name one of them"),
    ],
)
def test_what_cannot_run_is_one_line(cli, tmp_path, words, said):
    (tmp_path / "broken.py").write_text("import torch.distributed\nx =\n")
    (tmp_path / "plain.py").write_text("x = 1\n")
    (tmp_path / "ring.py").write_text("from harness import scenario\n")
    (tmp_path / "several.py").write_text(TESTS)
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("import nosuch\n", "module_not_found_error", "No module named 'nosuch'"),
        ("dist.init_process_group('glooo')\n", "wrong_collective", "did you mean 'gloo'?"),
        ("import os\nos.fork()\n", "process_started", "starts a process inside a simulated run"),
        (
            "dist.init_process_group('gloo')\nassert dist.get_world_size() == 2, 'two, please'\n",
            "assertion_error", "two, please",
        ),
        ("import sys\nsys.exit(3)\n", "rank_exited", "sys.exit(3)"),
        ("import os\nos._exit(3)\n", "rank_exited", "ended itself with os._exit(3)"),
        (
            "import argparse\nargparse.ArgumentParser('train.py').parse_args(['--nope'])\n",
            "rank_exited", "after printing 'train.py: error: unrecognized arguments: --nope'",
        ),
        ("import os\nos.abort()\n", "rank_exited", "ended itself with os.abort()"),
        ("import os\nos.kill(os.getpid(), 9)\n", "rank_exited", "ended itself with os.kill("),
        (
            "import os\ndist.init_process_group('gloo', rank=int(os.environ['RANK']), world_size=8)\n",
            "wrong_world", "world size 8, but 4 ranks were started",
        ),
        (
            "dist.init_process_group('gloo', rank=0, world_size=8)\n",
            "wrong_world", "world size 8, but 4 ranks were started",
        ),
    ],
)
def test_a_script_that_cannot_run_says_why_and_where(cli, tmp_path, text, name, said):
    (tmp_path / "bad.py").write_text(f"import torch.distributed as dist\n{text}")
    code, out, _ = cli("run", "bad.py")
    assert code == 1
    assert f"FAIL exceptions/{name} in bad.py::__main__" in out
    assert said in " ".join(out.split())
    assert "bad.py:" in out
    assert "checker torch failed" not in out


def test_distributed_tests_run_under_pytest(tmp_path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "FAIL torch/missing_collective in test_mine.py::test_skips" in done.stdout
    token = done.stdout.split("rankfault replay ")[1].split()[0]
    again = subprocess.run(
        [sys.executable, "-m", "harness.cli", "replay", token],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert again.returncode == 1, again.stdout + again.stderr
    assert "torch/missing_collective" in again.stdout


def test_distributed_tests_are_scenarios_of_their_file(tmp_path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    found = registry.find_all("test_mine.py")
    assert [one.name for one in found] == ["test_mine.py::test_mean", "test_mine.py::test_skips"]


GPU_SCRIPT = """\
import os
import torch
import torch.distributed as dist

assert torch.cuda.is_available(), "no GPU"
dist.init_process_group("nccl")
if os.environ["LOCAL_RANK"] != "0":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) - 1)
x = torch.ones(4).cuda()
dist.all_reduce(x)
"""


def test_a_script_that_insists_on_cuda_is_told_that_it_is_there(cli, tmp_path):
    (tmp_path / "train.py").write_text(GPU_SCRIPT)
    code, out, _ = cli("run", "train.py")
    assert code == 1
    assert "no GPU" in out
    code, out, _ = cli("run", "train.py", "--with-cuda")
    assert code == 1
    assert "torch/same_device" in out
    code, out, _ = cli("hunt", "train.py", "--with-cuda", "--plans", "2")
    assert code == 1
    (seed,) = tmp_path.glob("rankfault-findings/*/seed.json")
    assert json.loads(seed.read_text())["plan"]["params"] == {"argv": [], "cuda": True}
    code, out, _ = cli("replay", str(seed.relative_to(tmp_path)))
    assert code == 1
    assert "ranks 0 and 1 are both on CUDA device 0" in out


def test_the_next_command_says_it_again(cli, tmp_path):
    (tmp_path / "train.py").write_text(GPU_SCRIPT.replace(" - 1", ""))
    code, out, _ = cli("run", "train.py", "--with-cuda", "--lr", "1")
    assert code == 0
    assert "next: rankfault hunt train.py '--args=--lr 1' --with-cuda" in out


@pytest.mark.parametrize("command", ["run", "hunt"])
def test_only_scripts_are_told_about_cuda(cli, tmp_path, command):
    (tmp_path / "test_mine.py").write_text(TESTS)
    code, _, err = cli(command, "test_mine.py", "--with-cuda")
    assert code == 2
    assert "--with-cuda is for torch.distributed scripts" in err
    code, _, err = cli("run", "train.py", "--with-cuda", "--fabric", "processes")
    assert code == 2
    assert "--with-cuda" in err


def test_a_test_may_have_cuda(tmp_path):
    text = TESTS.partition("\n\n@distributed")[0] + """


@distributed_test(ranks=2, plans=3, backend="nccl", cuda=True)
def test_mine():
    assert torch.cuda.is_available()
    torch.cuda.set_device(dist.get_rank())
    x = torch.ones(3, device="cuda")
    dist.all_reduce(x)
    assert x.tolist() == [2, 2, 2]
"""
    (tmp_path / "test_mine.py").write_text(text)
    (scenario,) = registry.find_all("test_mine.py")
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=2)
    assert run(plan, scenario=scenario).findings == ()
