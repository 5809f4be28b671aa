# ranks: 2..4
"""Stages on neighbouring cards hand activations on, and gradients back."""

import os

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
torch.manual_seed(rank)
stage = torch.nn.Linear(4, 4, device=device)
torch.nn.init.constant_(stage.weight, 0.1 * (rank + 1))
torch.nn.init.zeros_(stage.bias)
for microbatch in range(2):
    x = torch.full((2, 4), 1.0 + microbatch).to(device)
    if rank > 0:
        x = torch.empty(2, 4, device=device)
        dist.recv(x, rank - 1)
    x.requires_grad_()
    y = stage(x)
    if rank < size - 1:
        dist.send(y.detach(), rank + 1)
        grad = torch.empty_like(y)
        dist.recv(grad, rank + 1)
        y.backward(grad)
    else:
        y.sum().backward()
    if rank > 0:
        dist.send(x.grad, rank - 1)
print(f"rank {rank}: {stage.weight.grad.sum().item():.4f}")
dist.destroy_process_group()
