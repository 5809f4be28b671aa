"""What ranks came to: alike for alike results, and scripts whose result the schedule decides."""

from __future__ import annotations

import sys

import pytest
import torch

from harness import Hold, Plan, Preempt, run
from harness.frontends.torch_distributed.outcome import plain
from harness.frontends.torch_distributed.script import script_scenario

HEAD = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
"""


def outcome(tmp_path, body, ranks, *schedule, scenario=None):
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    made = scenario or script_scenario(str(path), path.read_bytes())
    plan = Plan(scenario=made.name, params=made.params(), ranks=ranks, schedule=schedule)
    return run(plan, scenario=made)


def names(found):
    return [finding.name for finding in found.findings]


def test_texts_of_results():
    assert plain([1, "a", None, (2.5,), {"k": True}]) == "[1, 'a', None, [2.5], {'k': True}]"
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0]])
    assert plain(one) == plain(torch.tensor([[1.0, 0.0], [2.0, 0.0]])[:, 0])
    assert len({plain(one), plain(other), plain(one.double()), plain(one + 1)}) == 4
    assert plain(torch.zeros(0)).startswith("tensor([0], float32, ")
    assert plain(object()) == "object"
    assert plain(torch.tensor(True)).startswith("tensor([], bool, ")


FIRST_COME = """
if rank == 0:
    state = torch.zeros(1)
    for _ in range(size - 1):
        got = torch.empty(1)
        dist.recv(got{source})
        state = 0.5 * state + got
    print(state.item())
else:
    dist.send(torch.full((1,), 10.0 ** rank), dst=0)
"""


@pytest.mark.parametrize("deviation", [Hold, Preempt])
def test_a_result_that_follows_the_order_of_arrival(tmp_path, deviation):
    any_source = FIRST_COME.format(source="")
    assert names(outcome(tmp_path, any_source, 3)) == []
    found = [
        finding for at in range(12)
        for finding in outcome(tmp_path, any_source, 3, deviation(at, int(deviation is Preempt))).findings
    ]
    assert {finding.name for finding in found} == {"torch/schedule_dependent_result"}
    assert found[0].rank == 0
    assert "takes whatever comes first: rank 0's recv(got: [1] float32, from any rank) at " in (
        found[0].evidence[-1]
    )


def test_named_senders_come_to_the_same_in_every_order(tmp_path):
    named = FIRST_COME.format(source=", src=_ + 1")
    for at in range(12):
        assert names(outcome(tmp_path, named, 3, Preempt(at, 1))) == []
        assert names(outcome(tmp_path, named, 3, Hold(at, 0))) == []


TIMED = """
import datetime, time
begun = time.perf_counter()
x = torch.ones(2)
for _ in range(3):
    dist.all_reduce(x)
print(f"{x.sum().item()} in {time.perf_counter() - begun:.6f} s")
print(datetime.datetime.now())
if rank == 0:
    for _ in range(size - 1):
        dist.recv(x)
    print(x[0].item() if {wrong} else "done")
else:
    dist.send(torch.full((2,), float(rank)), dst=0)
"""


def test_times_that_a_program_prints_are_not_compared(tmp_path):
    body = TIMED.replace("{wrong}", "False")
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    scenario = script_scenario(str(path), path.read_bytes())
    found = [outcome(tmp_path, body, 3, Preempt(at, 1), scenario=scenario) for at in range(12)]
    assert [names(one) for one in found] == [[]] * 12
    assert len({one.run.printed[0].splitlines()[0] for one in found}) > 1
    wrong = TIMED.replace("{wrong}", "True")
    found = [names(outcome(tmp_path, wrong, 3, Preempt(at, 1))) for at in range(12)]
    assert ["torch/schedule_dependent_result"] in found


def test_a_standstill_in_works_is_one_finding_and_no_deadlock_of_cells(tmp_path):
    found = outcome(tmp_path, "dist.send(torch.ones(2), dst=(rank + 1) % size)", 3)
    assert found.run.ended == "blocked"
    assert {blocked.kind for blocked in found.run.blocked} == {"work"}
    assert names(found) == ["torch/send_recv_cycle"]
    assert found.findings[0].message.count("send([2] float32, to rank ") == 3


def test_what_ranks_raise_follows_from_the_mismatch(tmp_path):
    body = "dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)"
    found = outcome(tmp_path, body, 2)
    assert names(found) == ["torch/different_reduce_op"]
    assert len(found.findings[0].consequences) == 2
    assert "program.py:6 in <module>" in found.findings[0].message


def test_a_group_that_ranks_make_of_different_ranks(tmp_path):
    found = outcome(tmp_path, "dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1])", 4)
    assert names(found) == ["torch/different_group"]
    assert "rank 2 makes a group of [2, 3], rank 0 makes a group of [0, 1]" in found.findings[0].message
    every = "for first in range(0, size, 2): dist.new_group([first, first + 1])"
    assert names(outcome(tmp_path, every, 4)) == []


def test_names_reach_through_functions_of_the_user(tmp_path):
    body = """
def both(tensors):
    for t in tensors:
        dist.all_reduce(t)
def main():
    loss, hits = torch.ones(1), torch.ones(1)
    both([hits, loss] if rank == {odd} else [loss, hits])
main()
"""
    (finding,) = outcome(tmp_path, body.format(odd=2), 3).findings
    assert finding.name == "torch/different_order"
    assert finding.rank == 2
    assert names(outcome(tmp_path, body.format(odd=7), 3)) == []


@pytest.mark.parametrize(("body", "more"), [("dist.barrier()", False), (TIMED, True)])
def test_the_default_run_is_repeated_only_where_a_plan_comes_to_another(
    tmp_path, monkeypatch, body, more
):
    made = []
    module = sys.modules["harness.run"]
    real = module.execute
    monkeypatch.setattr(module, "execute", lambda job: made.append(job) or real(job))
    path = tmp_path / "program.py"
    path.write_text(HEAD + body.replace("{wrong}", "False"))
    scenario = script_scenario(str(path), path.read_bytes())
    schedules = [(), *((Preempt(at, 1),) for at in range(6))]
    for schedule in schedules:
        plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=3, schedule=schedule)
        assert run(plan, scenario=scenario).findings == ()
    assert (len(made) > len(schedules)) is more
