# ranks: 2..4
# One worker, three calls: its windows stay, and the number of the call is the threshold of its barrier.
# What a rank stages in one call alternates between two slots, so nobody overwrites what is still read.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")
EPOCHS = 3


@pl.jit.incore
def swap(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    epoch: pl.Tensor[[1, 1], pl.INT32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[2, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(data)
    me = pld.rank(ctx)
    n = pld.nranks(ctx)
    now = pl.read(epoch, [0, 0])
    slot = now % 2
    data = pl.store(pl.load(x, [0, 0], [1, SIZE]), [slot, 0], data)
    for peer in pl.range(n):
        if peer != me:
            pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    for src in pl.range(n):
        if src != me:
            pld.system.wait(signal, offsets=[src, 0], expected=now, cmp=pld.WaitCmp.Ge)
    seen = pld.tile.remote_load(data, peer=(me + 1) % n, offsets=[slot, 0], shape=[1, SIZE])
    return pl.store(seen, [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    epoch: pl.Tensor[[1, 1], pl.INT32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[2, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return swap(x, epoch, y, data, signal)


@pl.jit.host
def persistent_epochs(
    x: pl.Tensor[[NR, 1, SIZE], pl.FP32],
    epoch: pl.Tensor[[NR, 1, 1], pl.INT32],
    y: pl.Out[pl.Tensor[[NR, 1, SIZE], pl.FP32]],
):
    data_buf = pld.alloc_window_buffer([2, SIZE], dtype=pl.FP32)
    signal_buf = pld.alloc_window_buffer(pld.world_size() * pl.INT32.get_byte())
    for r in pl.range(pld.world_size()):
        data = pld.window(data_buf, [2, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [pld.world_size(), 1], dtype=pl.INT32)
        chip(x[r], epoch[r], y[r], data, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    n = len(cards)
    x = torch.zeros((n, 1, SIZE)).share_memory_()
    epoch = torch.zeros((n, 1, 1), dtype=torch.int32).share_memory_()
    y = torch.zeros((n, 1, SIZE)).share_memory_()
    compiled = persistent_epochs.compile(x, epoch, y, config=config)
    with compiled.prepare(persistent=True, reset_persistent_windows=False) as worker:
        for now in range(1, EPOCHS + 1):
            epoch.fill_(now)
            x.copy_(torch.arange(n * SIZE).reshape(n, 1, SIZE) + 100 * now)
            worker(x, epoch, y, config=config)
            assert torch.equal(y, x.roll(-1, 0)), f"call {now}: {y.tolist()}"


if __name__ == "__main__":
    main()
