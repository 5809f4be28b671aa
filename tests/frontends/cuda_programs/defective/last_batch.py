# ranks: 2..4
# expects: different_shape
# The last rank's share of the data is smaller, and its predictions are gathered as if it were not.
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
# cured: mine = TensorDataset(torch.arange(4.0))
mine = TensorDataset(torch.arange(4.0 if rank < size - 1 else 3.0))
predictions = []
for (batch,) in DataLoader(mine, batch_size=2, num_workers=2, pin_memory=True):
    predictions.append(batch.cuda(non_blocking=True) + rank)
mine = torch.cat(predictions)
everyone = [torch.empty_like(mine) for _ in range(size)]
dist.all_gather(everyone, mine)
print(f"rank {rank}: {torch.cat(everyone).sum().item()}")
dist.destroy_process_group()
