# ranks: 2..4
# no CPU form
"""What is on the host and what is on the card are two tensors, until somebody copies."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
host = torch.full((3,), float(rank))
card = host.cuda()
dist.all_reduce(card)
assert host.tolist() == [float(rank)] * 3, "the host's own is left alone"
history = []
for _ in range(3):
    card.mul_(2)
    history.append(card.cpu())
assert history[0][0] * 4 == history[2][0], "snapshots differ"
weight = torch.ones(2, device="cuda", requires_grad=True)
again = weight.to("cuda")
(again * 3).sum().backward()
assert weight.grad.tolist() == [3.0, 3.0]
print(f"rank {rank}: {[one[0].item() for one in history]}")
dist.destroy_process_group()
