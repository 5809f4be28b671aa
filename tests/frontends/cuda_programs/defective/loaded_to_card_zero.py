# ranks: 2..4
# expects: same_device
# The checkpoint's tensors go where they were saved, on card 0, and are broadcast from there.
import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
weights = {"w": torch.full((2, 2), float(rank))}
# cured: weights = {name: value.to(f"cuda:{rank}") for name, value in weights.items()}
weights = {name: value.to("cuda:0") for name, value in weights.items()}
for value in weights.values():
    dist.broadcast(value, src=0)
print(f"rank {rank}: {weights['w'].sum().item()}")
dist.destroy_process_group()
