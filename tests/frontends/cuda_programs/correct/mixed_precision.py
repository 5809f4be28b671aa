# ranks: 2..4
"""Automatic mixed precision with a GradScaler, whose state goes into the checkpoint."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)).to("cuda")
model = DistributedDataParallel(net, device_ids=[rank], gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
torch.manual_seed(10 + rank)
for _ in range(3):
    inputs, targets = torch.randn(4, 6).to("cuda"), torch.randn(4, 1).to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
state = {"model": model.module.state_dict(), "scaler": scaler.state_dict()}
assert state["scaler"]["scale"] == 256.0
print(f"rank {rank}: {sum(v.double().sum().item() for v in state['model'].values()):.6f}")
dist.destroy_process_group()
