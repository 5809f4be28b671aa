# ranks: 2..4
"""Forward and backward of a two-layer network whose parameters are sharded by FSDP2."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def network():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))


def batch(rank):
    return torch.randn(3, 6, generator=torch.Generator().manual_seed(rank))


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(batch(rank)).square().mean().backward()
    gradients = [p.grad.full_tensor() for p in model.parameters()]

    alone = network()
    sum(alone(batch(r)).square().mean() for r in range(size)).div(size).backward()
    for ours, theirs in zip(gradients, alone.parameters(), strict=True):
        assert torch.allclose(ours, theirs.grad, atol=1e-6), "a gradient differs"
    print(f"rank {rank}: {sum(g.double().sum().item() for g in gradients):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
