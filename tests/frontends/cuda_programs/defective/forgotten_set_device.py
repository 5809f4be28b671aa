# ranks: 2..4
# expects: same_device
# Every rank says "cuda" and means its own card, which nobody has chosen: all are on card 0.
import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
# cured: torch.cuda.set_device(rank)
# cured: x = torch.ones(4).to("cuda")
x = torch.ones(4).to("cuda")
dist.all_reduce(x)
print(f"rank {rank}: {x.tolist()}")
dist.destroy_process_group()
