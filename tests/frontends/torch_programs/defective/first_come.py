# ranks: 3..4
# expects: schedule_dependent_result
# A parameter server that takes updates in the order in which they come, and weighs the later ones more.
import torch
import torch.distributed as dist


def serve(size):
    state = torch.zeros(1)
    senders = []
    for turn in range(1, size):
        update = torch.empty(1)
        # cured: senders.append((turn, dist.recv(update, src=turn)))
        senders.append((turn, dist.recv(update)))
        state = 0.5 * state + update
    return state


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        state = serve(size)
    else:
        dist.send(torch.tensor([10.0**rank]), dst=0)
        state = torch.empty(1)
    dist.broadcast(state, src=0)
    print(f"rank {rank}: {state.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
