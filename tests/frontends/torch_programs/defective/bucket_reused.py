# ranks: 2..4
# expects: changed_in_flight
# One bucket for all gradients: it is filled with the next ones while its all_reduce is in flight.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradients = [torch.full((5000,), float(layer + rank)) for layer in range(4)]
    bucket = torch.empty(5000)
    reduced = []
    work = None
    for gradient in gradients:
        # cured: if work is not None: work.wait(); reduced.append(bucket.clone())
        # cured: bucket.copy_(gradient); work = dist.all_reduce(bucket, async_op=True); continue
        bucket.copy_(gradient)
        if work is not None:
            work.wait()
            reduced.append(bucket.clone())
        work = dist.all_reduce(bucket, async_op=True)
    work.wait()
    reduced.append(bucket.clone())
    print(f"rank {rank}: {[r.double().mean().item() for r in reduced]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
