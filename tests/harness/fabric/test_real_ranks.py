"""Real ranks of a script: their surroundings, their ends, their limits, and what is refused."""

import os
import signal
from pathlib import Path

import pytest

from faults.environment import Crash as CrashOfRank
from faults.process_groups import LateCall
from faults.processes import Stopped
from harness.ambient import now
from harness.errors import NotHere, PlanError, UsageError
from harness.fabric import real_ranks
from harness.fabric.real_ranks import run_real
from harness.supervise import Limits

LIMITS = Limits(operation=30, plan=90)  # which nothing here comes near


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_script_has_the_surroundings_that_torchrun_would_give_it(script, tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    path = script(
        "import os, sys, beside\n"
        "print(__name__, sys.argv[1:], os.environ['RANK'], os.environ['LOCAL_RANK'], "
        "os.environ['WORLD_SIZE'], os.environ['MINE'], beside.VALUE, os.getcwd())\n"
    )
    outcome = run_real(path, ["--steps", "3"], ranks=2, limits=LIMITS, env={"MINE": "yes"})
    assert [one.printed for one in outcome.ranks] == [
        f"__main__ ['--steps', '3'] {rank} {rank} 2 yes 5 {os.getcwd()}\n" for rank in range(2)
    ]
    assert outcome.first is None
    assert str(outcome).endswith("all ranks ended well")


@pytest.mark.parametrize(("text", "code", "error"), [
    ("import sys; sys.exit(0)", 0, ""),
    ("import sys; sys.exit(3)", 3, ""),
    ("import sys; sys.exit('no data')", 1, "no data"),
    ("raise KeyError('x')", 1, "KeyError: 'x'"),
    ("def f(:", 1, "SyntaxError: invalid syntax"),
    ("import no_such_module", 1, "ModuleNotFoundError: No module named 'no_such_module'"),
    ("import os; os.abort()", -signal.SIGABRT, "Fatal Python error: Aborted"),
    ("import os; os._exit(7)", 7, ""),
])
def test_every_way_to_end_is_told(script, text, code, error):
    (one,) = run_real(script(text), ranks=1, limits=LIMITS).ranks
    assert one.code == code
    assert one.error == error
    assert one.order == (0 if code else -1)


def test_calls_are_recorded_with_their_places_and_the_first_to_fail_is_named(script):
    path = script(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(3)\n"
        "dist.all_reduce(x, dist.ReduceOp.MAX)\n"
        "if dist.get_rank() == 1:\n"
        "    raise RuntimeError('mine')\n"
        "dist.broadcast(x, 1)\n"
    )
    outcome = run_real(path, ranks=2, limits=LIMITS)
    assert outcome.first == 1
    assert outcome.ranks[1].error == "RuntimeError: mine"
    assert [str(call) for call in outcome.ranks[0].calls] == [
        "all_reduce([3] float32, op=max)", "broadcast([3] float32, root=1)",
    ]
    assert [call.seq for call in outcome.ranks[0].calls] == [0, 1]
    assert f"broadcast([3] float32, root=1) at {path}:7" in str(outcome)
    assert outcome.findings() == ()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """What a script does to say that it is there. Once both ranks have, a plan's limit and more passes
    from look to look."""
    passed = [0.0]

    def shifted():
        if len(list(tmp_path.glob("there-*"))) == 2:
            passed[0] += 2 * LIMITS.plan
        return now() + passed[0]

    monkeypatch.setattr(real_ranks, "now", shifted)
    return f"open({str(tmp_path / 'there-')!r} + os.environ['RANK'], 'w').close()"


def test_a_rank_that_hangs_is_shown_where_it_stands_and_killed(script, here):
    path = script(f"import os, time\nwhile True:\n    {here}; time.sleep(0.1)\n")
    outcome = run_real(path, ranks=2, limits=LIMITS)
    assert [one.expired for one in outcome.ranks] == ["plan limit of 90 s"] * 2
    assert all("script.py" in one.stack and "line 3" in one.stack for one in outcome.ranks)
    assert {found.name for found in outcome.findings()} == {"process_group/hang"}


def test_of_ends_that_are_seen_in_one_look_the_cause_is_the_first(script, monkeypatch, tmp_path):
    """A busy harness looks late; rank 0 fails because rank 1 has, and has the lower number."""
    path = script(
        "import os, time\n"
        "from pathlib import Path\n"
        "told = Path(__file__ + '.told')\n"
        "if os.environ['RANK'] == '1':\n"
        "    told.with_suffix('.new').write_text(f'/proc/{os.getpid()}/stat')\n"
        "    told.with_suffix('.new').rename(told)\n"
        "    raise RuntimeError('mine')\n"
        "while not told.exists(): time.sleep(0.01)\n"
        "while ') Z' not in Path(told.read_text()).read_text(): time.sleep(0.01)\n"
        "raise RuntimeError('closed by peer')\n"
    )
    looked = real_ranks.Watched.look

    def late(one):
        while one.child.ended(within=1) is None:
            pass
        looked(one)

    monkeypatch.setattr(real_ranks.Watched, "look", late)
    outcome = run_real(path, ranks=2, limits=LIMITS)
    assert [one.order for one in outcome.ranks] == [1, 0]
    assert outcome.first == 1


def test_who_survives_another_has_a_limit_of_its_own(script):
    path = script(
        "import os, time\n"
        "if os.environ['RANK'] == '0': raise SystemExit(1)\n"
        "time.sleep(60)\n"
    )
    outcome = run_real(path, ranks=2, limits=Limits(operation=0.1, plan=50))
    assert outcome.first == 0
    assert outcome.ranks[1].expired == "operation limit of 0.1 s, 5 times"


def test_group_time_outs_are_shortened_to_the_limit(script):
    path = script(
        "import datetime, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=300))\n"
        "pair = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=200))\n"
        "import os, time\n"
        "if dist.get_rank():\n"
        "    while not os.path.exists(__file__ + '.over'): time.sleep(0.01)\n"
        "try: dist.all_reduce(torch.ones(1), group=pair)\n"
        "finally: open(__file__ + '.over', 'w').close()\n"
    )
    outcome = run_real(path, ranks=2, limits=Limits(operation=2, plan=90))
    assert "Timed out waiting 2000ms" in outcome.ranks[0].error


def test_a_stopped_rank_that_is_continued_is_right(script):
    path = script(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for step in range(3):\n"
        "    x = torch.ones(1); dist.all_reduce(x)\n"
        "print(x.item())\n"
    )
    stopped = Stopped(rank=1, nth=1, milliseconds=200)
    outcome = run_real(path, ranks=2, faults=[stopped], limits=LIMITS)
    assert [one.printed for one in outcome.ranks] == ["2.0\n"] * 2
    assert outcome.fired == (1,)


@pytest.mark.parametrize(("named", "error", "text"), [
    ({"ranks": 0}, UsageError, "ranks: given 0; allowed 1..64"),
    ({"backend": "mpi"}, UsageError, "backend: given 'mpi'; allowed: gloo, nccl"),
    ({"faults": [LateCall(rank=2)]}, PlanError, r"faults\[0\].rank: 2 is outside 0..1"),
    ({"faults": [CrashOfRank()]}, PlanError, "crash needs fabric simulated or processes, given torchrun"),
])
def test_what_cannot_be_is_refused_in_one_line(script, named, error, text):
    with pytest.raises(error, match=text):
        run_real(script(""), limits=LIMITS, **named)


def test_a_missing_script_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.py: no such script"):
        run_real(str(tmp_path / "none.py"))


def test_nccl_without_a_device_is_not_here(script, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NotHere, match="backend nccl: it needs a CUDA device"):
        run_real(script(""), backend="nccl")


@pytest.mark.gpu
def test_nccl_reduces_behind_the_interposed_group(script):
    path = script(
        "import torch, torch.distributed as dist\n"
        "torch.cuda.set_device(0)\n"
        "dist.init_process_group('nccl')\n"
        "x = torch.ones(1000, device='cuda'); dist.all_reduce(x)\n"
        "print(dist.get_backend(), x.sum().item()); dist.destroy_process_group()\n"
    )
    (one,) = run_real(path, ranks=1, backend="nccl", limits=Limits(operation=30, plan=90)).ranks
    assert one.printed == "nccl 1000.0\n"


def test_an_unsupported_backend_is_a_clear_error_with_the_users_line(script):
    path = script("import torch.distributed as dist\ndist.init_process_group('fake')\n")
    (one,) = run_real(path, ranks=1, limits=LIMITS).ranks
    assert "backend: given 'fake'; allowed on real process groups: gloo, nccl" in one.error
    assert f'"{Path(path)}", line 2' in one.log


def test_nothing_is_left_behind(script, here):
    path = script(f"import os, signal\nprint(os.getpid(), flush=True)\n{here}\nsignal.pause()\n")
    before = set(os.listdir("/proc/self/fd"))
    outcome = run_real(path, ranks=2, limits=LIMITS)
    for one in outcome.ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(int(one.printed), 0)
    assert set(os.listdir("/proc/self/fd")) == before
