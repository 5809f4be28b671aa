"""The command line as a process: signals, pipes, terminals, full disks, death, a new hash seed."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CLI = [sys.executable, "-m", "harness.cli"]
PASSES = """\
from harness import scenario, values

@scenario(reference=lambda size: [values(rank, 2) for rank in range(size)])
def alone(rank):
    rank.sync()
    return values(rank.index, 2)
"""
DIES = PASSES.replace(
    "rank.sync()", "rank.sync()\n    if rank.size == 3: __import__('os')._exit(9)"
)


@pytest.fixture
def here(tmp_path):
    (tmp_path / "user.py").write_text(PASSES)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RANKFAULT", "COLUMNS"))}
    return {**kept, **more}


def cli(here: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *words],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env=environment(**more),
    )


def said(err: str) -> list[str]:
    """The lines of stderr, but for those of progress, which only a hunt of a busy machine draws."""
    return [line for line in err.splitlines() if "  findings " not in line]


def test_ctrl_c_gives_the_summary_so_far_and_130(here):
    with subprocess.Popen(
        [*CLI, "hunt", "user.py"],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("root seed ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert said(err) == []
    assert "stopped with Ctrl-C" in out
    assert "user.py::alone" in out
    assert sorted(entry.name for entry in here.iterdir() if entry.name != "__pycache__") == [
        ".rankfault",
        "user.py",
    ]


def test_output_into_a_file_has_no_control_characters(here):
    done = cli(here, "hunt", "user.py", "--plans", "30", FORCE_COLOR="")
    assert done.returncode == 0
    assert all(line.isprintable() for line in (done.stdout + done.stderr).splitlines())


def everything(terminal: int) -> str:
    """What is written to a terminal until nobody has it open any more."""
    read = b""
    with contextlib.suppress(OSError):  # EIO, which Linux gives at the end
        while piece := os.read(terminal, 1 << 16):
            read += piece
    return read.decode()


def test_a_terminal_sees_live_progress_and_the_summary_stays_plain(here):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*CLI, "hunt", "user.py", "--plans", "300"],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=environment(TERM="xterm", COLUMNS="80"),
    ) as process:
        os.close(theirs)
        drawn = everything(ours)  # as it comes: a terminal that nobody reads holds its writer up
        out, _ = process.communicate()
    os.close(ours)
    assert process.returncode == 0
    assert "user.py::alone  0 plans" in drawn
    assert "faults fired" in drawn
    assert "\x1b[" in drawn
    assert "\x1b[" not in out


def test_a_reader_that_leaves_is_no_error(here):
    shell = f"{sys.executable} -m harness.cli list faults | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; ulimit -c 0; {shell}"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env=environment(PYTHONUNBUFFERED="1"),
    )
    assert done.stdout.strip() in ("0", "141")  # 0 when all was written before the reader left
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_stdout_is_one_line_and_exit_2(here):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*CLI, "list", "faults"],
            cwd=here,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment(),
        )
    assert done.returncode == 2
    assert done.stderr == "rankfault: the output cannot be written: No space left on device\n"


def test_a_plan_that_kills_the_interpreter_is_offered_at_the_next_start(here):
    (here / "user.py").write_text(DIES)
    died = cli(here, "hunt", "user.py", "--root-seed", "5")
    assert died.returncode == 9
    (here / "user.py").write_text(PASSES)
    after = cli(here, "hunt", "user.py", "--plans", "1")
    assert after.returncode == 0
    lines = [line.strip() for line in said(after.stderr)]
    assert "an earlier hunt died while a plan was in flight" in lines[0]
    replay = next(line for line in lines if line.startswith("rankfault replay rf1:"))
    again = next(line for line in lines if line.startswith("rankfault hunt "))
    assert said(cli(here, "hunt", "user.py", "--plans", "1").stderr) == []  # said once
    (here / "user.py").write_text(DIES)
    assert cli(here, *replay.split()[1:]).returncode == 9
    assert cli(here, *again.split()[1:]).returncode == 9


def test_without_a_place_for_the_slot_a_hunt_runs(here):
    done = cli(here, "hunt", "user.py", "--plans", "2", RANKFAULT_HOME="user.py/below")
    assert (done.returncode, said(done.stderr)) == (0, [])


def test_a_finding_replays_in_another_process_under_another_hash_seed(here):
    found = cli(
        here, "hunt", "collectives.allreduce_mesh", "--bug", "missing_barrier", PYTHONHASHSEED="1"
    )
    assert found.returncode == 1
    command = found.stdout.splitlines()[-1].removeprefix("next: rankfault ").split()
    said = {cli(here, *command, PYTHONHASHSEED=seed).stdout.splitlines()[0] for seed in ("2", "3")}
    assert len(said) == 1
    assert said.pop().startswith("reproduced: integrity/unwritten_memory")


LOOPS = {
    "in Python": "while True:\n    pass\n",
    "of collectives": "while True:\n    dist.barrier()\n",
    "that lets nothing through": """while True:
    try:
        dist.barrier()
    except BaseException:
        pass
""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_one_ctrl_c_is_enough_in_an_endless_loop_of_a_rank(here, name):
    (here / "loop.py").write_text(
        "import signal\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        f"if dist.get_rank() == 0:\n    signal.raise_signal(signal.SIGINT)\n{LOOPS[name]}"
    )
    done = cli(here, "hunt", "loop.py", "--ranks", "2")
    assert done.returncode == 130, done.stderr
    assert "stopped with Ctrl-C" in done.stdout
    assert "FAIL" not in done.stdout, "the run at hand counts for nothing"
    assert said(done.stderr) == []
