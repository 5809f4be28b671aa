# ranks: 2..4
"""Two training steps of a two-layer network under DistributedDataParallel."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # DDP broadcasts the parameters of rank 0
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model = DistributedDataParallel(net)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(100 + rank)
    for _ in range(2):
        inputs, targets = torch.randn(5, 6, generator=data), torch.randn(5, 2, generator=data)
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimiser.step()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    everywhere = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(everywhere, flat)
    assert all(torch.equal(flat, other) for other in everywhere), "the replicas have drifted apart"
    print(f"rank {rank}: {flat.double().sum().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
