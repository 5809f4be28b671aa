# ranks: 2..4
"""FSDP2 over a mesh of cards: built on meta, materialised, two steps."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{rank}")
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.fill_(0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(2):
        x = torch.full((3, 8), float(step + rank)).to(device)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    norm = sum(p.full_tensor().double().sum() for p in model.parameters())
    print(f"rank {rank}: {norm.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
