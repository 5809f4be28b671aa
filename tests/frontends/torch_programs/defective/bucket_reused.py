# ranks: 2..4
# expects: changed_in_flight
# The list of buckets holds one tensor four times: it is filled anew while its all_reduce is in flight.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    gradients = [torch.full((5000,), float(layer + rank)) for layer in range(4)]
    # cured: buckets = [torch.empty(5000) for _ in gradients]
    buckets = [torch.empty(5000)] * len(gradients)
    handles = []
    for gradient, bucket in zip(gradients, buckets, strict=True):
        bucket.copy_(gradient)
        handles.append(dist.all_reduce(bucket, async_op=True))
    for handle in handles:
        handle.wait()
    print(f"rank {rank}: {[bucket.double().mean().item() / size for bucket in buckets]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
