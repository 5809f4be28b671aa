# ranks: 3..4
"""Neighbouring pairs as groups: each rank is in two of them, and reduces in both, one after the other."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [(first, first + 1) for first in range(size - 1)]
    groups = [dist.new_group(pair) for pair in pairs]
    total = torch.tensor([float(10**rank)])
    for pair, group in zip(pairs, groups, strict=True):
        if rank in pair:
            dist.all_reduce(total, group=group)
    expected, held = 0.0, [float(10**r) for r in range(size)]
    for first, second in pairs:
        held[first] = held[second] = held[first] + held[second]
    expected = held[rank]
    assert total.item() == expected, (total, expected)
    print(f"rank {rank}: {total.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
