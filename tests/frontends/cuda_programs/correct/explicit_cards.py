# ranks: 2..4
"""No set_device: every tensor is put on the rank's card by name."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

r = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl", device_id=torch.device(f"cuda:{r}"))
torch.manual_seed(3)
model = DDP(nn.Linear(4, 2).to(f"cuda:{r}"), device_ids=[r])
loss = model(torch.ones(3, 4).to(f"cuda:{r}")).sum()
loss.backward()
counts = torch.tensor([r, 1], device=f"cuda:{r}")
dist.all_reduce(counts)
everyone = [torch.zeros(1, device=f"cuda:{r}") for _ in range(dist.get_world_size())]
dist.all_gather(everyone, torch.ones(1).to(f"cuda:{r}") * r)
print(f"rank {r}: {loss.item():.5f} {counts.tolist()} {[int(t) for t in everyone]}")
dist.destroy_process_group()
