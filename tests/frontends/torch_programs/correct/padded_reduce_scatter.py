# ranks: 2..4
"""All-reduce in two halves, of sizes that no world size divides: padded, reduce_scatter, all_gather."""

import torch
import torch.distributed as dist


def all_reduce(values):
    size = dist.get_world_size()
    share = -(-values.numel() // size)
    padded = values.new_zeros(share * size)
    padded[: values.numel()] = values
    mine = values.new_empty(share)
    dist.reduce_scatter_tensor(mine, padded)
    whole = torch.empty_like(padded)
    dist.all_gather_into_tensor(whole, mine)
    return whole[: values.numel()]


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    checksum = 0.0
    for count in (1, 5, 7, 13):
        values = torch.arange(count, dtype=torch.float64) * (rank + 1)
        expected = torch.arange(count, dtype=torch.float64) * (size * (size + 1) // 2)
        assert torch.equal(all_reduce(values), expected), (count, rank)
        checksum += expected.sum().item()
    print(f"rank {rank}: {checksum}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
