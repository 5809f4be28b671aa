# ranks: 2..4
# expects: missing_collective
# A batch without valid labels is skipped, the all_reduce in it too; only rank 1 has such a batch.
import torch
import torch.distributed as dist

IGNORED = -100


def batches(rank):
    labels = torch.arange(6).reshape(3, 2) + rank
    if rank == 1:
        labels[1] = IGNORED
    return labels


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seen = torch.zeros(1)
    for labels in batches(rank):
        valid = labels[labels != IGNORED]
        if not len(valid):
            # cured: pass
            continue
        loss = valid.float().sum().reshape(1)
        dist.all_reduce(loss)
        seen += loss
    print(f"rank {rank}: {seen.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
