# ranks: 2..4
"""Start-up by objects: rank 0 hands out the configuration, each its part; all hand back their plans."""

import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    config = [{"layers": 3, "name": "tiny"}, "bf16"] if rank == 0 else [None, None]
    dist.broadcast_object_list(config, src=0)
    assert config == [{"layers": 3, "name": "tiny"}, "bf16"], config

    part = [None]
    parts = [{"rank": r, "files": list(range(r + 1))} for r in range(size)] if rank == 0 else None
    dist.scatter_object_list(part, parts, src=0)
    assert part[0] == {"rank": rank, "files": list(range(rank + 1))}, part

    plans = [None] * size
    dist.all_gather_object(plans, (rank, len(part[0]["files"]) * config[0]["layers"]))
    assert plans == [(r, 3 * (r + 1)) for r in range(size)], plans
    seen = [None] * size if rank == size - 1 else None
    dist.gather_object(f"ready {rank}", seen, dst=size - 1)
    assert rank != size - 1 or seen == [f"ready {r}" for r in range(size)], seen
    print(f"rank {rank}: {sum(n for _, n in plans)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
