"""What real processes show of a finding: confirmed with emulated delay, natural, or not, and why."""

import pytest
import torch

from harness import Hold, NotifyOp, Plan, run, scenario, values
from harness.cli import main
from harness.confirm import confirm
from harness.corpus import token_of
from harness.supervise import Limits

N = 4


def from_left(size):
    return [values((rank - 1) % size, N) for rank in range(size)]


def push(fenced):
    @scenario(reference=from_left, ranks=(1, 8))
    def push(rank):
        data = rank.window("data", N, torch.float32)
        cells = rank.window("cells", 1, torch.int32)
        right = (rank.index + 1) % rank.size
        rank.put(data, right, values(rank.index, N))
        if fenced:
            rank.fence()
        rank.notify(cells, right, 0, 1, op=NotifyOp.Set)
        rank.wait(cells, 0, 1)
        return rank.load(data, 0, N)

    return push


def test_an_order_that_needs_a_delay_is_confirmed_with_it_each_time():
    made = push(fenced=False)
    plan = Plan(scenario="push", params=made.params(), ranks=2, schedule=(Hold(op=0),))
    (finding,) = run(plan, scenario=made).findings
    found = confirm(plan, made, finding, times=5)
    assert found.emulated == 5
    assert found.confirmed
    assert 0 <= found.natural <= 5
    assert found.lines()[0] == f"confirmed with emulated delay 5 of 5: {finding.identity}"
    assert found.shown.finds(finding.identity) is not None


def test_a_missing_fence_shows_in_natural_order_too_now_and_then():
    made = push(fenced=False)
    plan = Plan(scenario="push", params=made.params(), ranks=2, schedule=(Hold(op=0),))
    (finding,) = run(plan, scenario=made).findings
    assert any(confirm(plan, made, finding, times=8).natural for _ in range(5))


def test_what_processes_do_not_show_is_said_with_what_they_show_instead():
    broken, right = push(fenced=False), push(fenced=True)
    plan = Plan(scenario="push", params=broken.params(), ranks=2, schedule=(Hold(op=0),))
    (finding,) = run(plan, scenario=broken).findings
    found = confirm(plan, right, finding, times=2)
    assert (found.emulated, found.natural, found.confirmed) == (0, 0, False)
    first, second = found.lines()
    assert first == "not reproduced with emulated delay in 2 of 2: the run is PASS"
    assert second.startswith("not reproduced in natural order, 0 of 2")


def cli(*words):
    with pytest.raises(SystemExit) as caught:
        main(words)
    return caught.value.code


def test_replay_confirms_a_seed_on_processes(capsys):
    code = cli("replay", "put_get-notify_overtakes_put", "--fabric", "processes", "--times", "3")
    out = capsys.readouterr().out
    assert code == 1
    assert out.startswith("confirmed with emulated delay 3 of 3: integrity/unwritten_memory@")
    assert "natural" in out.splitlines()[1]
    assert "FAIL integrity/unwritten_memory" in out


def test_replay_has_nothing_to_confirm_where_the_simulated_run_is_clean(capsys):
    from systems.collectives.rounds import Rounds

    token = token_of(Plan(scenario="collectives.barrier", params=Rounds(), ranks=2))
    assert cli("replay", token, "--fabric", "processes") == 0
    assert "nothing to confirm on real processes" in capsys.readouterr().out


def test_the_time_for_all_runs_ends_them():
    made = push(fenced=False)
    plan = Plan(scenario="push", params=made.params(), ranks=2, schedule=(Hold(op=0),))
    (finding,) = run(plan, scenario=made).findings
    found = confirm(plan, made, finding, times=50, limits=Limits(hunt=0.2))
    assert 1 <= found.conducted + found.free < 100
    assert found.lines()[-1] == "the time for all runs was over before there were 50 of each kind"


def test_replay_takes_limits_and_a_start(capsys):
    seed = ("replay", "put_get-notify_overtakes_put")
    words = (*seed, "--fabric", "processes", "--start", "forkserver", "--operation-limit", "30")
    assert cli(*words, "--plan-limit", "60", "--limit", "90") == 1
    assert capsys.readouterr().out.startswith("confirmed with emulated delay 1 of 1")
    for wrong, said in (
        (("--fabric", "processes", "--limit", "0"), "hunt limit of 0.0 s: seconds, more than 0, are due"),
        (("--limit", "9"), "the simulated fabric has no limits of time; leave it out"),
        (("--start", "spawn"), "the simulated fabric has no processes that start; leave it out"),
        (("--fabric", "processes", "--start", "x"), "choose one of: fork, spawn, forkserver"),
    ):
        assert cli(*seed, *wrong) == 2
        assert said in capsys.readouterr().err


def test_hunts_on_processes_are_refused_with_what_to_do_instead(capsys):
    assert cli("hunt", "collectives.barrier", "--fabric", "processes") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "hunts run on the simulated fabric only" in line
    assert "rankfault replay SEED --fabric processes" in line
