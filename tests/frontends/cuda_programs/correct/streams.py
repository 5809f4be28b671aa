# ranks: 2..4
# no CPU form
"""Prefetching on a side stream, overlap of a reduction with work, and a time by events."""

import os

import torch
import torch.distributed as dist


class Prefetcher:
    def __init__(self, batches, device):
        self.batches, self.device = iter(batches), device
        self.stream = torch.cuda.Stream(device=device)
        self.preload()

    def preload(self):
        self.following = next(self.batches, None)
        if self.following is None:
            return
        with torch.cuda.stream(self.stream):
            self.following = self.following.cuda(non_blocking=True)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.following
        if batch is not None:
            batch.record_stream(torch.cuda.current_stream())
        self.preload()
        return batch


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("nccl", rank=rank, world_size=size)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
communication = torch.cuda.Stream()
prefetcher = Prefetcher([torch.full((4,), float(i + rank)).pin_memory() for i in range(3)], "cuda")
total = torch.zeros(4, device="cuda")
while (batch := prefetcher.next()) is not None:
    communication.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(communication):
        work = dist.all_reduce(batch, async_op=True)
    work.wait()
    torch.cuda.current_stream().wait_stream(communication)
    total += batch
done = torch.cuda.Event()
done.record(communication)
done.synchronize()
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) >= 0.0
assert done.query()
torch.cuda.nvtx.range_push("report")
print(f"rank {rank}: {total.tolist()} of {torch.cuda.get_device_name(rank)!r}"[:40])
torch.cuda.nvtx.range_pop()
free, whole = torch.cuda.mem_get_info()
assert 0 < free <= whole
assert torch.cuda.memory_allocated() >= 0
assert torch.cuda.max_memory_allocated() / 2**30 < whole
torch.cuda.reset_peak_memory_stats()
torch.cuda.empty_cache()
dist.destroy_process_group()
