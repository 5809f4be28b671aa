# ranks: 4
# expects: different_group or missing_collective or send_recv_cycle
# A 2 x 2 mesh: sums go along the row, but rank 3 (the only one with a bias) sums along its column.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
    has_bias = rank == 3
    value = torch.tensor([float(rank + 1)])
    # cured: group = mesh.get_group("column")
    group = mesh.get_group("row" if has_bias else "column")
    dist.all_reduce(value, group=group)
    print(f"rank {rank}: {value.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
