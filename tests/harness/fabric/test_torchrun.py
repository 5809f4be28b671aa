"""The supervisors that torchrun starts: their orders, and one report of the world."""

import os
import subprocess
import sys

import msgspec
import pytest
from torch._C._distributed_c10d import TCPStore

from faults.process_groups import KilledInCall
from harness.errors import PlanError, UsageError
from harness.fabric.real_outcome import RankOutcome
from harness.fabric.torchrun import ORDERS, Orders, main, orders
from harness.supervise import Limits

SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(2)
dist.all_reduce(x)
dist.all_reduce(x)
print(sys.argv[1:], x.tolist())
"""
IN_CALL = b'{"fault":"killed_in_call","rank":1,"nth":1}'
BEFORE = b'{"fault":"killed","rank":1,"nth":1}'  # so that rank 0 cannot have its result


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_orders_are_read_from_json_or_from_a_file_of_it(tmp_path):
    assert orders("") == Orders()
    text = f'{{"faults":[{IN_CALL.decode()}],"limits":{{"operation":2}},"backend":"gloo"}}'
    told = Orders(
        faults=(msgspec.to_builtins(KilledInCall(rank=1, nth=1)) | {"fault": "killed_in_call"},),
        limits=Limits(operation=2), backend="gloo",
    )
    assert orders(text).limits == told.limits
    assert orders(text).faults[0]["rank"] == 1
    (tmp_path / "orders.json").write_text(text)
    assert orders(str(tmp_path / "orders.json")) == orders(text)


@pytest.mark.parametrize(("text", "error", "told"), [
    ("none.json", UsageError, "RANKFAULT_REAL: none.json: No such file or directory"),
    ('{"faults":', UsageError, "RANKFAULT_REAL: Input data was truncated"),
    ('{"fault":[]}', PlanError, "RANKFAULT_REAL: Object contains unknown field `fault`"),
    ('{"limits":{"plan":"3"}}', PlanError, r"Expected `float`, got `str` - at `\$.limits.plan`"),
])
def test_wrong_orders_are_refused_in_one_line(text, error, told):
    with pytest.raises(error, match=told):
        orders(text)


@pytest.mark.parametrize(("argv", "variables", "told"), [
    ([], {}, "no script is named"),
    (["x.py"], {"RANK": ""}, "RANK: given ''; a number is due: start this through torchrun"),
    (["no.py"], {}, "no.py: no such script"),
    (["x.py"], {ORDERS: '{"faults":[{"fault":"late"}]}'}, "no fault is called 'late'; did you mean"),
    (["x.py"], {ORDERS: '{"faults":[{"fault":"late_call","nth":"a"}]}'}, "Expected `int`, got `str`"),
    (["x.py"], {"TORCHELASTIC_USE_AGENT_STORE": ""}, "start this through torchrun"),
])
def test_a_wrong_start_is_one_line_and_exit_code_2(argv, variables, told, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", ORDERS: "", **variables}.items():
        monkeypatch.setenv(name, value)
    assert main(argv) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.count("\n") == 1


def environment(rank, size, port, **more):
    return {
        **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": "lo", **more,
    }


def test_two_supervisors_tell_one_report(script, tmp_path):
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    report = tmp_path / "report.json"
    told = b'{"faults":[%s],"limits":{"operation":30,"plan":200},"report":"%s"}' % (BEFORE, bytes(report))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "harness.fabric.torchrun", script, "--steps"],
            env=environment(rank, 2, store.port, **{ORDERS: told.decode()}), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]
    shown = [one.communicate()[0] for one in started]
    assert [one.returncode for one in started] == [1, 128 + 9]
    assert "fault killed on rank 1: fired 1 times" in shown[0]
    assert "rank 1: killed by SIGKILL; last of 2 calls: all_reduce([2] float32, op=sum)" in shown[0]
    assert shown[0].endswith("first to fail: rank 1\n")
    assert shown[1] == ""
    outcomes = msgspec.json.decode(report.read_bytes(), type=list[RankOutcome])
    assert [one.code for one in outcomes] == [1, -9]
    assert len(outcomes[0].calls) == 2


@pytest.mark.nightly
def test_torchrun_itself_starts_them(script):
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
            "harness.fabric.torchrun", script, "a", "b",
        ],
        capture_output=True, text=True, env={**os.environ, ORDERS: "{}"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("['a', 'b'] [4.0, 4.0]") == 2
    assert done.stdout.endswith("all ranks ended well\n")
