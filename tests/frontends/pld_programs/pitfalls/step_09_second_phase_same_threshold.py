# ranks: 2..4
# expects: races/unordered_read or races/unordered_write
# Reduce-scatter, then all-gather, meeting on the same cells: the second barrier waits for what the first
# already left there.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

NR = pl.dynamic("NR")


@pl.jit.incore
def two_phases(
    x: pl.Tensor[[1, NR], pl.FP32],
    y: pl.Out[pl.Tensor[[1, NR], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, NR], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(data)
    me = pld.rank(ctx)
    n = pld.nranks(ctx)
    for k in pl.range(n):
        pl.write(data, [0, k], pl.read(x, [0, k]))
    for peer in pl.range(n):
        if peer != me:
            pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    for src in pl.range(n):
        if src != me:
            pld.system.wait(signal, offsets=[src, 0], expected=1, cmp=pld.WaitCmp.Ge)
    total = pl.load(data, [0, me], [1, 1])
    for peer in pl.range(n):
        if peer != me:
            total = pl.add(total, pld.tile.remote_load(data, peer=peer, offsets=[0, me], shape=[1, 1]))
    data = pl.store(total, [0, me], data)
    for peer in pl.range(n):
        if peer != me:
            pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    for src in pl.range(n):
        if src != me:
            # cured: pld.system.wait(signal, offsets=[src, 0], expected=2, cmp=pld.WaitCmp.Ge)
            pld.system.wait(signal, offsets=[src, 0], expected=1, cmp=pld.WaitCmp.Ge)
    y = pl.store(total, [0, me], y)
    for peer in pl.range(n):
        if peer != me:
            seen = pld.tile.remote_load(data, peer=peer, offsets=[0, peer], shape=[1, 1])
            y = pl.store(seen, [0, peer], y)
    return y


@pl.jit
def chip(
    x: pl.Tensor[[1, NR], pl.FP32],
    y: pl.Out[pl.Tensor[[1, NR], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, NR], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return two_phases(x, y, data, signal)


@pl.jit.host
def all_reduce_two_phase(
    x: pl.Tensor[[NR, 1, NR], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, 1, NR], pl.FP32]],
):
    n = pld.world_size()
    data_buf = pld.alloc_window_buffer(n * pl.FP32.get_byte())
    signal_buf = pld.alloc_window_buffer(n * pl.INT32.get_byte())
    for r in pl.range(n):
        data = pld.window(data_buf, [1, n], dtype=pl.FP32)
        signal = pld.window(signal_buf, [n, 1], dtype=pl.INT32)
        chip(x[r], y[r], data, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    n = len(cards)
    x = torch.arange(n * n, dtype=torch.float32).reshape(n, 1, n) + 1
    y = torch.zeros_like(x)
    all_reduce_two_phase(x, y, config=config)
    assert torch.equal(y, x.sum(0, keepdim=True).expand_as(x)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
