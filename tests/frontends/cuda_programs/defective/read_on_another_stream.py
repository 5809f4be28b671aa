# ranks: 2..4
# expects: read_in_flight
# The reduction goes on while its result is read: a wait for the stream is no wait for the work.
import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
side = torch.cuda.Stream()
x = torch.full((1000,), float(rank), device="cuda")
with torch.cuda.stream(side):
    work = dist.all_reduce(x, async_op=True)
# cured: work.wait()
# cured: mean = x.mean().item()
mean = x.mean().item()
work.wait()
torch.cuda.current_stream().wait_stream(side)
print(f"rank {rank}: {mean}")
dist.destroy_process_group()
