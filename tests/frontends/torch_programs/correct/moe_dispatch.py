# ranks: 2..4
"""Tokens to experts and back: uneven all_to_all_single, the split sizes exchanged beforehand."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    # Token t of rank r goes to expert (t * t + r) % size: some experts get none.
    expert = torch.tensor([(t * t + rank) % size for t in range(5 + rank)])
    order = expert.argsort(stable=True)
    tokens = torch.stack([torch.arange(5 + rank) + 100 * rank, expert], dim=1).double()
    counts = torch.bincount(expert, minlength=size)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    at_expert = tokens.new_empty(int(arriving.sum()), 2)
    dist.all_to_all_single(at_expert, tokens[order], arriving.tolist(), counts.tolist())
    assert bool((at_expert[:, 1] == rank).all()), at_expert

    at_expert[:, 0] += 0.5
    sorted_back = torch.empty_like(tokens)
    dist.all_to_all_single(sorted_back, at_expert, counts.tolist(), arriving.tolist())
    combined = torch.empty_like(tokens)
    combined[order] = sorted_back
    assert torch.equal(combined[:, 0], tokens[:, 0] + 0.5), combined
    print(f"rank {rank}: {combined.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
