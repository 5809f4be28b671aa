# ranks: 2..4
"""The next batch is broadcast while the present one is worked on; is_completed() says when it is here."""

import torch
import torch.distributed as dist

BATCHES = 3


def batch(number):
    return torch.arange(4, dtype=torch.float32) + 10 * number


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buffers = [torch.empty(4), torch.empty(4)]
    if rank == 0:
        buffers[0].copy_(batch(0))
    dist.broadcast(buffers[0], src=0)
    total = 0.0
    for number in range(BATCHES):
        present, following = buffers[number % 2], buffers[(number + 1) % 2]
        work = None
        if number + 1 < BATCHES:
            if rank == 0:
                following.copy_(batch(number + 1))
            work = dist.broadcast(following, src=0, async_op=True)
        assert torch.equal(present, batch(number)), (number, present)
        total += present.square().sum().item()
        if work is not None:
            while not work.is_completed():
                pass
            work.wait()
    assert total == sum(batch(n).square().sum().item() for n in range(BATCHES))
    print(f"rank {rank}: {total}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
