"""How groups come to be: every way to init, every backend by name, and what does not fit together."""

from __future__ import annotations

import pytest

from harness.frontends.torch_distributed.script import variables

WELL = """
t = torch.ones(1)
dist.all_reduce(t)
assert t.item() == dist.get_world_size()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "call",
    [
        "",
        "'gloo'",
        "'nccl'",
        "'mpi'",
        "'cpu:gloo,cuda:nccl'",
        "'gloo', init_method='env://'",
        "'gloo', init_method='tcp://10.1.1.20:23456', rank=rank, world_size=size",
        "'gloo', init_method='file:///nowhere/shared', rank=rank, world_size=size",
        "'gloo', store=dist.TCPStore('h', 1, size, rank == 0), rank=rank, world_size=size",
        "timeout=timedelta(seconds=10)",
    ],
)
def test_every_way_to_init(script, begin, call):
    outcome = script(f"""
import os
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group({call})
asked = {call.split("', ")[0].strip("'")!r}
assert asked not in ("gloo", "nccl", "mpi") or dist.get_backend() == asked
{WELL}
assert not dist.is_initialized()
dist.init_process_group('gloo')
{WELL}
""", 3, begin=begin)
    assert [found.message for found in outcome.findings] == []


def test_an_unknown_backend_is_named(script, begin):
    (found, *_) = script("dist.init_process_group('glooo')", 2, begin=begin).findings
    assert found.kind == "wrong_collective"
    assert "no simulated backend 'glooo'; did you mean 'gloo'?" in found.message
    assert "init_process_group at" in found.message
    assert "program.py:" in found.message


def test_a_rank_that_never_comes_to_init_is_named(script, begin):
    outcome = script("""
        import os
        if os.environ["RANK"] != "2":
            dist.init_process_group("gloo")
    """, 3, begin=begin)
    assert outcome.run.ended == "blocked"
    assert outcome.findings[0].rank == 2


def test_a_rank_that_never_comes_to_init_within_a_limit(script, begin):
    outcome = script("""
        import os
        if os.environ["RANK"] != "2":
            try:
                dist.init_process_group("gloo", timeout=timedelta(seconds=4))
            except dist.DistStoreError as error:
                print(error)
    """, 3, begin=begin)
    assert "Wait timeout after 4000ms; not arrived: rank 2" in outcome.run.printed[0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda given, rank: given | ({"RANK": "0"} if rank == 1 else {}), "rank 0 is taken"),
        (lambda given, rank: given | ({"RANK": "7"} if rank == 1 else {}), "rank 7 is outside 0..2"),
        (lambda given, rank: given | ({"WORLD_SIZE": "4"} if rank == 1 else {}), "world size"),
        (lambda given, rank: {k: v for k, v in given.items() if k != "RANK"}, "RANK expected"),
        (lambda given, rank: given | {"RANK": "one"}, "'one'"),
    ],
)
def test_a_wrong_environment_is_told(script, change, told):
    outcome = script("", 3, variables_of=lambda rank, size: change(variables(rank, size), rank))
    assert any(told in found.message for found in outcome.findings)
    assert all("program.py:" in found.message for found in outcome.findings)


def test_a_group_whose_ranks_disagree_on_its_members(script):
    outcome = script("dist.new_group([0, 1] if rank == 0 else [0, 1, 2])", 3)
    assert outcome.findings[0].name == "torch/different_group"


def test_nccl_makes_a_group_without_meeting(script, begin):
    outcome = script("""
        dist.init_process_group("nccl")
        if dist.get_rank() == 0:
            group = dist.new_group([0, 1])
            dist.recv(torch.empty(1), 1)
        else:
            dist.send(torch.ones(1), 0)
            group = dist.new_group([0, 1])
        dist.barrier(group)
    """, 2, begin=begin)
    assert outcome.findings == ()


def test_a_non_members_call_is_told(script):
    outcome = script("""
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(2), group=group)
    """, 3)
    assert outcome.findings[0].name == "torch/non_member_call"
    assert outcome.findings[0].rank == 2


def test_torchs_own_state_is_left_as_it_was(script):
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    before = c10d._world, c10d._new_process_group_helper, dist.TCPStore
    script("raise ValueError", 3)
    assert (c10d._world, c10d._new_process_group_helper, dist.TCPStore) == before
    assert not dist.is_initialized()
    assert not c10d._pg_map
