# ranks: 2..4
"""The default device is the rank's card."""

import os

import torch
import torch.distributed as dist

torch.set_default_device("cuda")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.arange(4) + dist.get_rank()
dist.all_reduce(x)
with torch.device("cuda"):
    layer = torch.nn.Linear(2, 2)
    mask = torch.tril(torch.ones(3, 3))
for parameter in layer.parameters():
    dist.broadcast(parameter.data, src=0)
print(f"rank {dist.get_rank()}: {x.tolist()} {int(mask.sum())}")
torch.set_default_device(None)
dist.destroy_process_group()
