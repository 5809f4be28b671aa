# ranks: 2..4
# expects: different_splits
# Tokens go to experts by uneven splits; the receiving side takes what comes for even.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    tokens = torch.arange(2.0 * size) + 100 * rank
    counts = [2] * size
    counts[0], counts[-1] = 1, 3  # the last expert is popular
    # cured: arriving = [counts[rank]] * size
    arriving = [2] * size
    received = torch.zeros(sum(arriving))
    dist.all_to_all_single(received, tokens, arriving, counts)
    print(f"rank {rank}: {received.tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
