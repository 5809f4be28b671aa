# ranks: 2..4
"""Two linear layers, the first by columns, the second by rows, with an autograd function for the sum."""

import os

import torch
import torch.distributed as dist


class Reduced(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return grad


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
torch.manual_seed(2)
first, second = torch.randn(12, 4).cuda(), torch.randn(4, 12).cuda()
mine = slice(rank * 12 // size, (rank + 1) * 12 // size)
w1 = first[mine].clone().requires_grad_()
w2 = second[:, mine].clone().requires_grad_()
x = torch.ones(3, 4, device="cuda")
y = Reduced.apply(torch.relu(x @ w1.t()) @ w2.t())
expected = torch.relu(x @ first.t()) @ second.t()
torch.testing.assert_close(y, expected)
y.sum().backward()
gathered = [torch.empty(1, device="cuda") for _ in range(size)]
dist.all_gather(gathered, w1.grad.norm().reshape(1))
print(f"rank {rank}: {y.sum().item():.4f} {sum(g.item() ** 2 for g in gathered):.3f}")
dist.destroy_process_group()
