# ranks: 2..4
"""All-reduce on a ring, by hand: size - 1 steps of reduce-scatter, size - 1 of all-gather."""

import torch
import torch.distributed as dist


def step(outgoing, incoming, rank, size):
    sent = dist.isend(outgoing, (rank + 1) % size)
    received = dist.irecv(incoming, (rank - 1) % size)
    sent.wait()
    received.wait()


def ring_all_reduce(values):
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = list(values.chunk(size))
    inbox = torch.empty_like(chunks[0])
    for hop in range(size - 1):
        step(chunks[(rank - hop) % size], inbox, rank, size)
        chunks[(rank - hop - 1) % size] += inbox
    for hop in range(size - 1):
        step(chunks[(rank + 1 - hop) % size], inbox, rank, size)
        chunks[(rank - hop) % size].copy_(inbox)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    values = torch.arange(12 * size, dtype=torch.float64) + 1000 * rank
    ring_all_reduce(values)
    expected = size * torch.arange(12 * size, dtype=torch.float64) + 1000 * sum(range(size))
    assert torch.equal(values, expected), values
    print(f"rank {rank}: {values.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
