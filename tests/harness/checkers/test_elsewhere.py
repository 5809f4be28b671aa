"""Values found in another place than the one where they were due, and results that nobody wrote."""

from __future__ import annotations

import pytest
import torch

from harness import Plan, Scenario, World, registry, run, scenario, values
from harness.checkers.elsewhere import place_of
from harness.checkers.results import wrong_results
from harness.diagnosis.table import BECAUSE

F32 = torch.float32


def only(outcome):
    (finding,) = outcome.findings
    return finding, "\n".join(finding.evidence)


@pytest.mark.parametrize(("nbytes", "where"), [
    (4, "'window'[1] of rank 2, 4 bytes behind it"), (8, "'window'[2] of rank 2, 8 bytes behind it"),
])
def test_a_misaligned_base_tells_where_the_bytes_went(nbytes, where):
    mesh = registry.find("collectives.allreduce_mesh")
    fault = registry.faults()["misaligned_base"](rank=2, nth=0, nbytes=nbytes)
    plan = Plan(scenario=mesh.name, params=mesh.params(), ranks=4, faults=(fault,))
    finding, text = only(run(plan, scenario=mesh))
    assert finding.name == "integrity/unwritten_memory"
    assert f"the 3 that was due there was written to {where}: rank 2's store at" in text
    assert finding.cause == BECAUSE["elsewhere"][0]
    assert "x->" not in text
    assert "missing edge" not in text  # no order of the accesses would help


@scenario(reference=lambda size: [values((r - 1) % size, 2) for r in range(size)], ranks=(3, 8))
def from_the_right(rank) -> torch.Tensor:
    data = rank.window("data", 2, F32)
    rank.store(data, values(rank.index, 2))
    rank.barrier()
    return rank.remote_load(data, (rank.index + 1) % rank.size, 0, 2)


def test_the_wrong_peer_is_shown_beside_the_right_one(judge):
    finding, text = only(judge(from_the_right, 3))
    assert finding.name == "integrity/wrong_value"
    assert finding.sites == ()  # what is found elsewhere does not enter the identity
    assert "read 'data'[0:2] of rank 1" in text
    assert "the 3 that was due there was written to 'data'[0] of rank 2: rank 2's store at" in text


@scenario(reference=lambda size: [torch.zeros(2)] * size, ranks=(1, 8))
def zeros_expected(rank) -> torch.Tensor:
    data = rank.window("data", 4, F32)
    rank.store(data, torch.tensor([5.0, 5.0, 0.0, 0.0]))
    return rank.load(data, 0, 2)


def test_values_that_are_too_common_tell_nothing(judge):
    finding, text = only(judge(zeros_expected, 1))
    assert "was due there" not in text
    assert finding.cause not in [cause for cause, _ in BECAUSE.values()]


def stored_at(offset: int) -> Scenario:
    def program(rank, out) -> None:
        rank.store(out, values(rank.index, 1) + 0, (rank.index + offset) % rank.size)

    def host(world: World, _: object) -> dict[str, list[torch.Tensor]]:
        out = torch.zeros(world.size, 1).share_memory_()
        world.prepare(out)
        for r in range(world.size):
            if r or not offset:
                world.dispatch(program, out, device=r)
            else:
                world.dispatch(lambda rank, out: None, out, device=r)
        return {"out": list(out)}

    return Scenario(
        name="stored", host=host, ranks=(1, 8),
        reference=lambda _, size: {"out": [values(r, 1) for r in range(size)]},
    )


def test_a_result_that_another_rank_wrote_or_nobody(judge):
    outcome = judge(stored_at(1), 3)
    finding, text = only(outcome)
    assert finding.rank == 0
    assert "it was last written by rank 2's store at" in text
    wrong = wrong_results(outcome.run.observed, outcome.run.expected, 3, (), 0.0)
    places = [place_of(outcome.run, entry) for entry in wrong]
    assert [place[1:] for place in places] == [(0, 4), (4, 8), (8, 12)]
    assert judge(stored_at(0), 3).findings == ()


def test_the_row_of_another_rank_is_never_written(judge):
    hello = registry.find("collectives.hello_rank")
    plan = Plan(
        scenario=hello.name, params=hello.params(sizes=(2,)), ranks=2, bug="identity_read_once"
    )
    finding, text = only(run(plan, scenario=hello))
    assert "its place was never written" in finding.message
    assert "nothing in this run wrote 'out'[2], where that result lies" in text
    assert "wrote 'out'[0:2], event 3" in text
    assert finding.cause == BECAUSE["result_unwritten"][0]


@scenario(reference=lambda size: [values(0, 2)] * size, ranks=(3, 8))
def forwarded(rank) -> torch.Tensor:
    """Rank 0's row goes round; rank 1 passes on its own instead, so all behind it are wrong."""
    data = rank.window("data", 2, F32)
    cells = rank.window("cells", 1, torch.int32)
    if rank.index == 0:
        rank.store(data, values(0, 2))
    else:
        rank.wait(cells, 0, 1)
    row = rank.load(data, 0, 2)
    if rank.index + 1 < rank.size:
        rank.put(data, rank.index + 1, values(1, 2) if rank.index == 1 else row)
        rank.fence()
        rank.notify(cells, rank.index + 1, 0, 1)
    return row


def test_what_all_ranks_hold_is_not_in_the_wrong_place(judge):
    finding, text = only(judge(forwarded, 3))
    assert (finding.name, finding.rank) == ("integrity/wrong_value", 2)
    assert "was written to" not in text
    assert finding.cause != BECAUSE["elsewhere"][0]
