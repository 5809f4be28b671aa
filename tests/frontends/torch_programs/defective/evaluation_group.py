# ranks: 3..4
# expects: non_member_call
# All ranks but the last evaluate; the last one calls the group's all_reduce too, and keeps its own value.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    evaluating = dist.new_group(list(range(size - 1)))
    score = torch.tensor([float(rank + 1)])
    # cured: if rank < size - 1: dist.all_reduce(score, group=evaluating)
    # cured: dist.broadcast(score, src=0)
    dist.all_reduce(score, group=evaluating)
    keep = score.item() > 2.5
    print(f"rank {rank}: score {score.item()}, keep {keep}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
