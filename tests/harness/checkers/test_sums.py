"""Wrong sums, and the reads that are cited for results that several reads could explain."""

from __future__ import annotations

import torch

from harness import Hold, Plan, registry, run, scenario, values
from harness.hunt import Order, hunt

F32, INT = torch.float32, torch.int32


def test_a_nan_that_spread_is_traced_to_unwritten_memory():
    """In a world of eight the first rank reads other ranks' NaN sums; those had read too early."""
    mesh = registry.find("collectives.allreduce_mesh")
    plan = Plan(scenario=mesh.name, params=mesh.params(), ranks=8, bug="neighbours_only")
    outcome = run(plan, scenario=mesh)
    (finding,) = outcome.findings
    assert finding.name == "integrity/unwritten_memory"
    assert [str(site) for site in finding.sites] == ["reduce:remote_load#0"]
    read = next(e for i in finding.events if (e := outcome.run.events[i]).kind == "remote_load")
    earlier = [
        e for e in outcome.run.events[: outcome.run.events.index(read)]
        if e.kind == "store" and (e.window, e.peer) == (read.window, read.peer)
    ]
    assert earlier == []  # "unwritten memory" is what the record shows


def test_a_sum_of_early_and_late_summands_is_explained():
    mesh = registry.find("collectives.allreduce_mesh")
    fault = registry.faults()["duplicated_notify"](rank=-1, nth=-1)
    plan = Plan(scenario=mesh.name, params=mesh.params(sizes=(1, 1)), ranks=3, faults=(fault,))
    (finding,) = run(plan, scenario=mesh).findings
    assert finding.sites


def two_rows(size: int) -> list[list[torch.Tensor]]:
    row = [values((r - 1) % size, 2) for r in range(size)]
    return [[mine, mine] for mine in row]


@scenario(reference=two_rows, ranks=(1, 8))
def two_ways(rank) -> list[torch.Tensor]:
    pushed, staged = rank.window("pushed", 2, F32), rank.window("staged", 2, F32)
    rank.store(staged, values(rank.index, 2))
    rank.put(pushed, (rank.index + 1) % rank.size, values(rank.index, 2))
    rank.sync()
    first = rank.load(pushed, 0, 2)
    return [first, rank.remote_load(staged, (rank.index - 1) % rank.size, 0, 2)]


def test_of_two_reads_of_the_same_value_the_early_one_is_cited(judge):
    (finding,) = judge(two_ways, 2, Hold(0)).findings
    assert [str(site) for site in finding.sites] == ["two_ways:load#0"]


def test_a_result_is_traced_to_the_read_before_its_own_store():
    """put_get brings the same row three ways; `pushed` must not be blamed on the get."""
    rung = registry.find("collectives.put_get")
    fault = registry.faults()["duplicated_notify"](rank=-1, nth=-1)
    plan = Plan(scenario=rung.name, params=rung.params(sizes=(1, 1)), ranks=2, faults=(fault,))
    (finding,) = run(plan, scenario=rung).findings
    assert "'pushed 1'" in finding.message
    assert [str(site) for site in finding.sites] == ["take_pushed:load#0"]


def test_equal_reads_that_are_stored_later_are_taken_in_their_order():
    rung = registry.find("collectives.remote_load_store")
    found = hunt(Order(rung, 1, bug="load_before_sent", plans_max=20))
    assert "'stored 0'" in found.finding.message
    assert "'inbox'" in found.finding.evidence[0]
