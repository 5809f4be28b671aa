# ranks: 2..4
"""A broadcast that each branch calls at a line of its own, with a variable of its own: quite legal."""

import torch
import torch.distributed as dist


def load_weights():
    return torch.arange(6, dtype=torch.float32).reshape(2, 3) * 3


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        weights = load_weights()
        bias = torch.full((2, 3), 5.0)
        dist.broadcast(weights, src=0)
        dist.broadcast(bias, src=0)
        result = weights + bias
    else:
        received = torch.empty(2, 3)
        offset = torch.empty(2, 3)
        dist.broadcast(received, src=0)
        dist.broadcast(offset, src=0)
        result = received + offset
    # The turns pass along: in each round another rank is the source.
    for turn in range(size):
        mine = torch.tensor([float(turn * 7)]) if turn == rank else torch.zeros(1)
        dist.broadcast(mine, src=turn)
        result = result + mine
    expected = load_weights() + 5 + 7 * sum(range(size))
    assert torch.equal(result, expected), result
    print(f"rank {rank}: {result.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
