# ranks: 2..4
# no CPU form
"""Chooses by what is there, backend and device alike."""

import os

import torch
import torch.distributed as dist

use_cuda = torch.cuda.is_available()
backend = "nccl" if use_cuda and dist.is_nccl_available() else "gloo"
if use_cuda:
    local_rank = int(os.environ["LOCAL_RANK"])
    assert local_rank < torch.cuda.device_count()
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", torch.cuda.current_device())
    properties = torch.cuda.get_device_properties(device)
    assert properties.total_memory > 0
    assert torch.cuda.get_device_capability()[0] >= 7
    assert torch.accelerator.current_accelerator().type == "cuda"
else:
    device = torch.device("cpu")
dist.init_process_group(backend)
assert dist.get_backend() == backend
x = torch.ones(2, device=device)
dist.all_reduce(x)
print(f"rank {dist.get_rank()}: {x.tolist()} by {backend}")
dist.destroy_process_group()
