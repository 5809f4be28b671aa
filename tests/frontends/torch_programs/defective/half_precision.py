# ranks: 2..4
# expects: different_dtype
# Gradients are compressed to bfloat16 where the card can; the last rank's older card cannot, and takes
# float16. Both have two bytes.
import torch
import torch.distributed as dist


def supports_bfloat16(rank, size):
    # cured: return True
    return rank < size - 1


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    gradient = torch.tensor([0.5, -1.0, 3.0, 8.0]) * (rank + 1)
    dtype = torch.bfloat16 if supports_bfloat16(rank, size) else torch.float16
    compressed = gradient.to(dtype)
    dist.all_reduce(compressed)
    print(f"rank {rank}: {compressed.float().tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
