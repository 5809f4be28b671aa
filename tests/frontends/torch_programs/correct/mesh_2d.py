# ranks: 4
"""A 2 x 2 device mesh: sums within the rows, then the largest of them within the columns."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    row, column = mesh.get_coordinate()
    assert (row, column) == divmod(rank, 2)
    value = torch.tensor([1.0, 10.0]) * (rank + 1)
    dist.all_reduce(value, group=mesh.get_group("shard"))
    assert value[0].item() == (3.0, 7.0)[row], value
    dist.all_reduce(value, op=dist.ReduceOp.MAX, group=mesh["replica"].get_group())
    assert value.tolist() == [7.0, 70.0], value
    print(f"rank {rank}: {value.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
