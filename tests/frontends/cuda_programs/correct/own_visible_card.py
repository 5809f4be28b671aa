# ranks: 2..4
"""Each rank sees one card, which is number 0 to it."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
x = torch.full((4,), float(dist.get_rank())).to("cuda:0")
dist.all_reduce(x)
print(f"rank {dist.get_rank()}: {x.tolist()}")
dist.destroy_process_group()
