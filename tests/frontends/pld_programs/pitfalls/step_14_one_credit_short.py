# ranks: 2..4
# expects: deadlock/signal_leak
# Each round meets twice on its cells and takes back one credit only: what is left over opens the first
# barrier of the next round.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def two_rounds(
    x: pl.Tensor[[2, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[2, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(data)
    me = pld.rank(ctx)
    n = pld.nranks(ctx)
    for k in pl.range(2):
        data = pl.store(pl.load(x, [k, 0], [1, SIZE]), [0, 0], data)
        for peer in pl.range(n):
            if peer != me:
                pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        for src in pl.range(n):
            if src != me:
                pld.system.wait(signal, offsets=[src, 0], expected=1, cmp=pld.WaitCmp.Ge)
        total = pl.load(data, [0, 0], [1, SIZE])
        for peer in pl.range(n):
            if peer != me:
                seen = pld.tile.remote_load(data, peer=peer, offsets=[0, 0], shape=[1, SIZE])
                total = pl.add(total, seen)
        y = pl.store(total, [k, 0], y)
        for peer in pl.range(n):
            if peer != me:
                pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        for src in pl.range(n):
            if src != me:
                pld.system.wait(signal, offsets=[src, 0], expected=2, cmp=pld.WaitCmp.Ge)
        for src in pl.range(n):
            if src != me:
                # cured: pld.system.notify(signal, me, [src, 0], -2, op=pld.NotifyOp.AtomicAdd)
                pld.system.notify(signal, me, [src, 0], -1, op=pld.NotifyOp.AtomicAdd)
    return y


@pl.jit
def chip(
    x: pl.Tensor[[2, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[2, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return two_rounds(x, y, data, signal)


@pl.jit.host
def reduce_twice(x: pl.Tensor[[NR, 2, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, 2, SIZE], pl.FP32]]):
    data_buf = pld.alloc_window_buffer(SIZE * pl.FP32.get_byte())
    signal_buf = pld.alloc_window_buffer(pld.world_size() * pl.INT32.get_byte())
    for r in pl.range(pld.world_size()):
        data = pld.window(data_buf, [1, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [pld.world_size(), 1], dtype=pl.INT32)
        chip(x[r], y[r], data, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * 2 * SIZE, dtype=torch.float32).reshape(len(cards), 2, SIZE) + 1
    y = torch.zeros_like(x)
    reduce_twice(x, y, config=config)
    assert torch.equal(y, x.sum(0, keepdim=True).expand_as(x)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
