# ranks: 2..4
# expects: different_shape
# Rank 1 loaded its checkpoint with another layout: the same number of elements, transposed.
import torch
import torch.distributed as dist


def load_gradient(rank):
    gradient = torch.arange(6, dtype=torch.float32).reshape(2, 3) + 10 * rank
    if rank == 1:
        # cured: return gradient
        return gradient.t().contiguous()
    return gradient


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradient = load_gradient(rank)
    dist.all_reduce(gradient)
    print(f"rank {rank}: {gradient.flatten().tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
