# ranks: 2..4
"""Activation checkpointing with dropout, and seeds for all cards."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU())
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False))


def main():
    set_seed(7)
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    model = DDP(Net().cuda(), device_ids=[torch.cuda.current_device()], find_unused_parameters=False)
    x = torch.ones(5, 4).cuda().requires_grad_()
    with torch.random.fork_rng():
        torch.rand(3)
    model(x).sum().backward()
    total = sum(p.grad.double().sum().item() for p in model.parameters())
    print(f"rank {dist.get_rank()}: {total:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
