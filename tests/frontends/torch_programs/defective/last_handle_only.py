# ranks: 2..4
# expects: dropped_handle or read_in_flight
# A loop starts one all_reduce a bucket and keeps the handle in one variable: the last one is waited for.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    buckets = [torch.full((n,), float(rank + 1)) for n in (40000, 30000, 20000)]
    for bucket in buckets:
        handle = dist.all_reduce(bucket, async_op=True)
        # cured: handle.wait()
    handle.wait()
    means = [bucket.double().mean().item() / size for bucket in buckets]
    print(f"rank {rank}: {means}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
