# ranks: 2..4
# expects: different_collective or different_order or missing_collective
# A rank that sees an overflow skips the step, and the reduction of the norm in it.
import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
weight = torch.ones(4, device="cuda", requires_grad=True)
scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
for step in range(2):
    scale = float("inf") if rank == 1 and step == 0 else 1.0
    with torch.autocast("cuda"):
        loss = (weight * scale).sum()
    scaler.scale(loss).backward()
    found = torch.isinf(weight.grad).any().float().reshape(1)
    # cured: dist.all_reduce(found, dist.ReduceOp.MAX)
    found = found + 0.0
    if found.item():
        weight.grad = None
        continue
    norm = weight.grad.norm().reshape(1)
    dist.all_reduce(norm)
    weight.grad = None
dist.barrier()
print(f"rank {rank}: done")
dist.destroy_process_group()
