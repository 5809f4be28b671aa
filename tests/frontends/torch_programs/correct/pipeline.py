# ranks: 2..4
"""A pipeline: every rank is a stage, micro-batches pass from stage to stage by send and recv."""

import torch
import torch.distributed as dist

MICRO_BATCHES = 4


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    results = []
    for number in range(MICRO_BATCHES):
        activation = torch.empty(2, 3)
        if rank == 0:
            activation = torch.full((2, 3), float(number + 1))
        else:
            dist.recv(activation, rank - 1, tag=number)
        activation = activation * 2 + rank
        if rank < size - 1:
            dist.send(activation, rank + 1, tag=number)
        else:
            results.append(activation)
    for number, result in enumerate(results):
        expected = float(number + 1)
        for stage in range(size):
            expected = expected * 2 + stage
        assert torch.equal(result, torch.full((2, 3), expected)), (number, result)
    print(f"rank {rank}: {sum(r.sum().item() for r in results)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
