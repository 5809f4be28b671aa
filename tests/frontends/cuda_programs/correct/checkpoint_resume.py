# ranks: 2..4
"""Rank 0 saves, all load to their own card by map_location, as the DDP tutorial does."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def demo_checkpoint(rank):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).to(rank)
    ddp_model = DDP(model, device_ids=[rank])
    names = [tempfile.gettempdir() if rank == 0 else None]
    if rank == 0:
        names[0] = tempfile.mkdtemp() + "/model.checkpoint"
        torch.save(ddp_model.state_dict(), names[0])
    dist.broadcast_object_list(names, src=0)
    dist.barrier()  # nobody loads before rank 0 has saved
    map_location = {"cuda:0": f"cuda:{rank}"}
    weights = torch.load(names[0], map_location=map_location, weights_only=True)
    ddp_model.load_state_dict(weights)
    on_card = torch.load(names[0], map_location=f"cuda:{rank}", weights_only=True)
    assert all(torch.equal(weights[name], on_card[name]) for name in weights)
    onto = torch.load(names[0], map_location=lambda storage, place: storage.cuda(rank), weights_only=True)
    assert onto.keys() == weights.keys()
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.001)
    outputs = ddp_model(torch.ones(20, 4))
    nn.MSELoss()(outputs, torch.ones(20, 2).to(rank)).backward()
    optimizer.step()
    dist.barrier(device_ids=[rank])
    if rank == 0:
        os.remove(names[0])
        os.rmdir(os.path.dirname(names[0]))
    total = sum(p.detach().double().sum().item() for p in ddp_model.parameters())
    print(f"rank {rank}: {total:.6f}")


if __name__ == "__main__":
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    torch.manual_seed(4)
    demo_checkpoint(local_rank)
    dist.destroy_process_group()
