# ranks: 2..4
# expects: different_shape
# The last rank's batch is short, and so are the logits that it gathers.
import torch
import torch.distributed as dist

SAMPLES_A_RANK = 4


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    samples = torch.arange(SAMPLES_A_RANK * size - 1, dtype=torch.float32)
    batch = samples[rank * SAMPLES_A_RANK : (rank + 1) * SAMPLES_A_RANK]
    # cured: logits = torch.zeros(SAMPLES_A_RANK, 3)
    # cured: logits[: len(batch)] = torch.stack([batch, batch * 2, batch * 3], dim=1)
    logits = torch.stack([batch, batch * 2, batch * 3], dim=1)
    dist.all_reduce(logits)
    print(f"rank {rank}: {logits.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
