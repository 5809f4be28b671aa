# ranks: 2..4
"""Statistics gathered at the root, which alone passes a gather_list, then decisions scattered from it."""

import torch
import torch.distributed as dist

ROOT = 1


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([rank, rank * rank + 1], dtype=torch.int64)
    gathered = [torch.empty_like(mine) for _ in range(size)] if rank == ROOT else None
    dist.gather(mine, gather_list=gathered, dst=ROOT)
    decisions = None
    if rank == ROOT:
        assert [g.tolist() for g in gathered] == [[r, r * r + 1] for r in range(size)], gathered
        decisions = [g.flip(0) * 10 for g in gathered]
    decision = torch.empty_like(mine)
    dist.scatter(decision, scatter_list=decisions, src=ROOT)
    assert decision.tolist() == [10 * (rank * rank + 1), 10 * rank], decision
    total = decision.clone()
    dist.reduce(total, dst=0)
    if rank == 0:
        assert total[1].item() == 10 * sum(range(size)), total
    print(f"rank {rank}: {decision.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
