# ranks: 2..4
# expects: missing_collective
# Only rank 0 evaluates, and the average that evaluation takes is over all ranks.
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(3, 1).cuda(), device_ids=[rank])
model(torch.ones(2, 3, device="cuda")).sum().backward()


def evaluate():
    loss = model.module(torch.ones(2, 3).cuda()).mean().detach()
    dist.all_reduce(loss)
    return loss.item()


# cured: loss = evaluate()
loss = evaluate() if rank == 0 else None
torch.cuda.synchronize()
print(f"rank {rank}: done")
dist.destroy_process_group()
