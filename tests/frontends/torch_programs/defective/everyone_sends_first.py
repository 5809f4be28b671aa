# ranks: 2..4
# expects: send_recv_cycle
# A ring in which every rank sends to its right before it receives from its left.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((1000,), float(rank + 1))
    theirs = torch.empty(1000)
    right, left = (rank + 1) % size, (rank - 1) % size
    # cured: sending = dist.isend(mine, right)
    dist.send(mine, right)
    # cured: dist.recv(theirs, left)
    # cured: sending.wait()
    dist.recv(theirs, left)
    print(f"rank {rank}: {theirs.sum().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
