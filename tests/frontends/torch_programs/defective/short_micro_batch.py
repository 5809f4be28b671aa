# ranks: 2..4
# expects: different_message_size
# The last micro-batch is short; the next stage receives it into a buffer of the full size.
import torch
import torch.distributed as dist

BATCH, MICRO = 10, 4


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    total = 0.0
    for first in range(0, BATCH, MICRO):
        rows = min(MICRO, BATCH - first)
        if rank == 0:
            activation = torch.arange(first, first + rows, dtype=torch.float32)
        else:
            # cured: activation = torch.zeros(rows)
            activation = torch.full((MICRO,), -1.0)
            dist.recv(activation, rank - 1)
        total += activation.sum().item()
        if rank < size - 1:
            dist.send(activation, rank + 1)
    print(f"rank {rank}: {total}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
