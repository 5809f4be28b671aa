# ranks: 4
# expects: different_group
# Every rank makes only its own tensor-parallel group; new_group wants every group made by every rank.
import torch
import torch.distributed as dist

TENSOR_PARALLEL = 2


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    first = rank // TENSOR_PARALLEL * TENSOR_PARALLEL
    # cured: groups = [dist.new_group([r, r + 1]) for r in range(0, size, TENSOR_PARALLEL)]
    # cured: group = groups[first // TENSOR_PARALLEL]
    group = dist.new_group(list(range(first, first + TENSOR_PARALLEL)))
    partial = torch.tensor([float(rank + 1)])
    dist.all_reduce(partial, group=group)
    print(f"rank {rank}: {partial.item()} of {size}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
