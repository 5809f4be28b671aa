# ranks: 2..4
"""A start-up in stages, each ended by a monitored_barrier that would name whoever is missing."""

from datetime import timedelta

import torch
import torch.distributed as dist

LIMIT = timedelta(seconds=30)


def main():
    dist.init_process_group("gloo", timeout=LIMIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    weights = torch.zeros(4)
    if rank == 0:
        weights = torch.arange(4.0) + 1  # the others wait while rank 0 reads the file
    dist.monitored_barrier(timeout=LIMIT)
    dist.broadcast(weights, src=0)
    assert weights.tolist() == [1.0, 2.0, 3.0, 4.0], weights
    warm = torch.ones(1)
    dist.all_reduce(warm)
    dist.monitored_barrier(timeout=LIMIT, wait_all_ranks=True)
    dist.barrier()
    assert warm.item() == size
    print(f"rank {rank}: {weights.sum().item() * warm.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
