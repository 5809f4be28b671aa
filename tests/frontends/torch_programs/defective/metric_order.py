# ranks: 2..4
# expects: different_order
# Odd ranks begin with the other metric: the same collective, shape and dtype, in swapped order.
import torch
import torch.distributed as dist


def reduce_loss(metrics):
    dist.all_reduce(metrics["loss"])


def reduce_hits(metrics):
    dist.all_reduce(metrics["hits"])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metrics = {"loss": torch.tensor([0.5 + rank]), "hits": torch.tensor([10.0 * (rank + 1)])}
    steps = [reduce_loss, reduce_hits]
    if rank % 2:
        # cured: pass
        steps.reverse()
    for step in steps:
        step(metrics)
    print(f"rank {rank}: loss {metrics['loss'].item()}, hits {metrics['hits'].item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
