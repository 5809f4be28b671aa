# ranks: 2..4
"""Functional collectives: results are new tensors, waited for when they are first used."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    mine = torch.arange(size, dtype=torch.float32) + 10 * rank
    total = funcol.all_reduce(mine, "sum", group)
    gathered = funcol.all_gather_tensor(mine, gather_dim=0, group=group)
    share = funcol.reduce_scatter_tensor(mine, "sum", scatter_dim=0, group=group)
    expected = torch.stack([torch.arange(size, dtype=torch.float32) + 10 * r for r in range(size)])
    assert torch.equal(total + 0, expected.sum(0)), total
    assert torch.equal(gathered.reshape(size, size), expected), gathered
    assert share.item() == expected.sum(0)[rank].item(), share
    assert torch.equal(mine, expected[rank]), "the input was changed"
    print(f"rank {rank}: {(total.sum() + gathered.sum() + share.sum()).item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
