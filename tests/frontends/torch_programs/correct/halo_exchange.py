# ranks: 2..4
"""A one-dimensional heat equation: borders are exchanged by batch_isend_irecv before each step."""

import torch
import torch.distributed as dist

CELLS = 6
STEPS = 3


def exchange(field, rank, size):
    """Fill the two ghost cells of `field` from the neighbours; the ends of the rod keep theirs."""
    sides = []
    if rank > 0:
        sides.append((rank - 1, field[1:2].clone(), field[0:1]))
    if rank < size - 1:
        sides.append((rank + 1, field[-2:-1].clone(), field[-1:]))
    calls = []
    for peer, outgoing, ghost in sides:
        calls.append(dist.P2POp(dist.isend, outgoing, peer))
        calls.append(dist.P2POp(dist.irecv, ghost, peer))
    for work in dist.batch_isend_irecv(calls):
        work.wait()


def smooth(field):
    field[1:-1] = (field[:-2] + 2 * field[1:-1] + field[2:]) / 4


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    rod = torch.zeros(CELLS * size + 2, dtype=torch.float64)
    rod[1:-1] = torch.arange(CELLS * size, dtype=torch.float64) ** 2
    field = rod[rank * CELLS : (rank + 1) * CELLS + 2].clone()
    for _ in range(STEPS):
        exchange(field, rank, size)
        smooth(field)
        smooth(rod)
    assert torch.equal(field[1:-1], rod[rank * CELLS + 1 : (rank + 1) * CELLS + 1]), field
    print(f"rank {rank}: {field[1:-1].sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
