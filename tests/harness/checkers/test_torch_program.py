"""What comes first among the findings of one run, and results that follow the schedule."""

from __future__ import annotations

import torch

from harness import Plan, Preempt, Scenario, run
from harness.checkers.torch_program import TorchProgram
from harness.frontends.torch_distributed.calls import Call, TensorMeta
from harness.scenario import NoParams

F4 = TensorMeta((4,), "float32")


def right(dist, rank):
    x = torch.ones(4)
    dist.all_reduce(x, op="sum")


def test_a_program_without_a_call_is_no_business_of_this_checker(torch_world):
    record, found = torch_world(lambda dist, rank: None, 2)
    assert found == []
    record.torch_calls = []
    assert list(TorchProgram().check(record)) == []


def other_op(dist, rank):
    x = torch.ones(4)
    dist.all_reduce(x, op="max" if rank else "sum")


def test_what_ranks_raised_because_of_it_is_a_consequence(torch_world):
    record, (finding,) = torch_world(other_op, 2)
    assert len(record.failures) == 2
    assert len(finding.consequences) == 2
    assert "rank 1 reduces with max" in finding.consequences[0]


def test_another_result_than_usual(torch_world):
    record, _ = torch_world(right, 2)
    record.came_to, record.usually = ["a\nb", "c"], ["a\nb", "c"]
    assert list(TorchProgram().check(record)) == []
    record.came_to = ["a\nB", "c"]
    record.torch_calls[0].append(Call("recv", 0, (0, 1), outputs=(F4,), names=("got",)))
    (finding,) = TorchProgram().check(record)
    assert finding.name == "torch/schedule_dependent_result"
    assert finding.rank == 0
    assert finding.evidence[0] == "rank 0 came to 'B'; in the default run to 'b'"
    assert finding.evidence[1].startswith("takes whatever comes first: rank 0's recv(got: [4] float32, ")


class Results:
    """A checker that says what the run knows of itself and of the default run."""

    name = "results"

    def check(self, run):
        self.seen = (run.came_to, run.usually)
        return ()


def first_come(rank):
    cell = rank.window("cell", 1, torch.int32)
    rank.barrier()
    if rank.index < 2:
        rank.remote_store(cell, 2, torch.full((1,), rank.index + 1, dtype=torch.int32), 0)
    rank.barrier()
    return rank.load(cell, 0, 1).tolist()


def made(program, ranks=3):
    seen = Results()

    def host(world, params):
        for index in range(world.size):
            world.dispatch(program, device=index)

    return seen, Scenario(
        name="first_come", host=host, checkers=(seen,), ranks=(ranks, ranks),
        comes_to=lambda record: [str(result) for result in record.results],
    )


def test_a_run_knows_what_the_default_run_came_to():
    seen, scenario = made(first_come)

    def came_to(*schedule):
        plan = Plan(scenario="first_come", params=NoParams(), ranks=3, schedule=schedule)
        assert run(plan, scenario=scenario).findings == ()
        return seen.seen

    first, usual = came_to()
    assert usual is None
    others = [came_to(Preempt(at, 1)) for at in range(12)]
    assert all(usual == first for _, usual in others)
    assert {now[2] for now, _ in others} == {"[[1]]", "[[2]]"}
    assert all(now[:2] == first[:2] for now, _ in others)
