# ranks: 2..4
# expects: different_message_dtype
# The first stage runs in float16, the buffers of the others are bfloat16: as many bytes.
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        # cured: activation = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
        activation = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16)
    else:
        activation = torch.empty(3, dtype=torch.bfloat16)
        dist.recv(activation, rank - 1)
    activation *= 2
    if rank < size - 1:
        dist.send(activation, rank + 1)
    print(f"rank {rank}: {activation.float().tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
