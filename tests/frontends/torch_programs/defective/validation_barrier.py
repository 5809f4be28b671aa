# ranks: 2..4
# expects: different_collective
# The last rank's shard is empty when there are fewer samples than ranks; it then calls barrier, "to
# keep in step", where the others call all_reduce.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    samples = torch.arange(1.0, size)  # one too few
    mine = samples[rank::size]
    total = torch.tensor([mine.sum().item(), float(len(mine))])
    if len(mine):
        dist.all_reduce(total)
    else:
        # cured: dist.all_reduce(total)
        dist.barrier()
    print(f"rank {rank}: {total[0].item() / max(total[1].item(), 1)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
