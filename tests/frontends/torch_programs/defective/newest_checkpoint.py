# ranks: 2..4
# expects: different_root
# Who has the newest checkpoint is the source of the weights. The last rank reads a stale listing, and
# takes itself for the newest.
import torch
import torch.distributed as dist


def newest(rank, size):
    steps = {0: 100, **{r: 80 for r in range(1, size)}}
    if rank == size - 1:
        # cured: pass
        steps = {**dict.fromkeys(range(size), 60), rank: 80}
    return max(steps, key=steps.__getitem__)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    weights = torch.full((4,), 100.0 + rank)
    dist.broadcast(weights, src=newest(rank, size))
    print(f"rank {rank}: {weights.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
