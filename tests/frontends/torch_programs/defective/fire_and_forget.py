# ranks: 2..4
# expects: dropped_handle
# Counts are sent to rank 0 by an asynchronous reduce; nobody but rank 0 waits before the program ends.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    counts = torch.full((50000,), float(rank + 1))
    work = dist.reduce(counts, dst=0, async_op=True)
    # cured: work.wait()
    # cured: if rank == 0:
    if rank == 0:
        work.wait()
        print(f"rank {rank}: {counts.double().sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
