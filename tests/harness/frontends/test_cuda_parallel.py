"""What torch builds on cards: meshes, sharding, tensor parallelism, optimisers of shards, hooks."""

from __future__ import annotations

import pytest

BEGIN = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
x = torch.ones(2, 8, device="cuda")
"""
PROGRAMS = {
    "mesh": """
        from torch.distributed.tensor import Shard, distribute_tensor
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
        spread = distribute_tensor(torch.arange(8.0, device="cuda").reshape(4, 2), mesh["tp"], [Shard(0)])
        assert spread.full_tensor().sum() == 28
        dist.all_reduce(x, group=mesh["dp"].get_group())
        assert x.sum() == 32
    """,
    "tensor parallel": """
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module,
        )
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda")
        expected = net(x)
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        found = parallelize_module(net, init_device_mesh("cuda", (size,)), plan)(x)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
    """,
    "fsdp2": """
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        net = nn.Linear(8, 8).cuda()
        fully_shard(net, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        optimiser = torch.optim.Adam(net.parameters())
        net(x).sum().backward()
        optimiser.step()
        whole = get_model_state_dict(
            net, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        assert len(whole) == (2 if rank == 0 else 0)
    """,
    "zero": """
        from torch.distributed.optim import ZeroRedundancyOptimizer
        net = DDP(nn.Linear(8, 4).cuda(), device_ids=[rank])
        optimiser = ZeroRedundancyOptimizer(
            net.parameters(), optimizer_class=torch.optim.Adam, lr=0.1
        )
        net(x).sum().backward()
        optimiser.step()
    """,
    "join": """
        from torch.distributed.algorithms.join import Join
        net = DDP(nn.Linear(8, 1).cuda(), device_ids=[rank])
        with Join([net]):
            for _ in range(2 + rank):
                net(x).sum().backward()
    """,
    "hook": """
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        net = DDP(nn.Linear(8, 4).cuda(), device_ids=[rank])
        net.register_comm_hook(None, fp16_compress_hook)
        net(x).sum().backward()
    """,
    "batch of messages": """
        y = torch.empty_like(x)
        ops = [
            dist.P2POp(dist.isend, x * rank, (rank + 1) % size),
            dist.P2POp(dist.irecv, y, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert y[0, 0] == (rank - 1) % size
    """,
    "group": """
        pair = dist.new_group([0, 1], device_id=torch.device("cuda", rank))
        if rank < 2:
            dist.all_reduce(x, group=pair)
        gathered = [None] * size
        dist.all_gather_object(gathered, {"rank": rank, "sum": x.sum().item()})
        assert gathered[3] == {"rank": 3, "sum": 16.0}
    """,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's, of its own names
@pytest.mark.parametrize("cuda", [False, True], ids=["unsaid", "said"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_on_cards(script, name, cuda):
    outcome = script(PROGRAMS[name], 4, begin=BEGIN, cuda=cuda)
    assert outcome.findings == (), str(outcome.findings[0])


def test_the_same_plan_is_the_same_run(script):
    text = "x = torch.rand(4, device='cuda')\ndist.all_reduce(x)\nprint(x.tolist())\n"
    first, again = (script(text, 3, begin=BEGIN).run for _ in range(2))
    assert first.identity() == again.identity()
    assert first.printed == again.printed
