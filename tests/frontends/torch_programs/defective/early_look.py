# ranks: 2..4
# expects: read_in_flight
# The gathered logits are looked at while the all_gather is in flight; the wait comes a line too late.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    logits = torch.full((20000,), float(rank + 1))
    everyone = torch.zeros(size * 20000)
    work = dist.all_gather_into_tensor(everyone, logits, async_op=True)
    # cured: work.wait()
    # cured: best = everyone.max().item()
    best = everyone.max().item()
    work.wait()
    print(f"rank {rank}: best {best}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
