# ranks: 2..4
"""Gradients in buckets: every all_reduce is started at once, the handles are waited for in order."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    gradients = [torch.arange(n, dtype=torch.float32) + rank for n in (3, 5, 2, 7, 1, 4)]
    buckets, handles = [], []
    for first in range(0, len(gradients), 2):
        bucket = torch.cat(gradients[first : first + 2])
        buckets.append(bucket)
        handles.append(dist.all_reduce(bucket, async_op=True))
    reduced = []
    for bucket, handle in zip(buckets, handles, strict=True):
        handle.wait()
        reduced.append(bucket / size)
    flat = torch.cat(reduced)
    expected = torch.cat([torch.arange(n, dtype=torch.float32) for n in (3, 5, 2, 7, 1, 4)])
    assert torch.allclose(flat, expected + (size - 1) / 2), flat
    print(f"rank {rank}: {flat.sum().item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
