# ranks: 2..4
# expects: different_reduce_op
# Each rank chooses the norm by its own gradient: whoever has a large one takes the maximum (MAX), the
# others add squares (SUM).
import torch
import torch.distributed as dist

LARGE = 100.0


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    gradient = torch.arange(1.0, 5.0) * (200.0 if rank == size - 1 else 1.0)
    # cured: largest = False
    largest = gradient.abs().max().item() > LARGE
    if largest:
        norm = gradient.abs().max().reshape(1)
    else:
        norm = gradient.square().sum().reshape(1)
    dist.all_reduce(norm, op=dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    print(f"rank {rank}: {norm.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
