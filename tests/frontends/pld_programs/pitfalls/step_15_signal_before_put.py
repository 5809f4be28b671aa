# ranks: 2..4
# expects: integrity/stale_value
# A rank says that its rows are there, then sends them.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def exchange(
    x: pl.Tensor[[NR, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, SIZE], pl.FP32]],
    rows: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(rows)
    me = pld.rank(ctx)
    n = pld.nranks(ctx)
    for peer in pl.range(n):
        # cured: pld.tensor.put(rows, peer, x, [me, 0], [peer, 0], [1, SIZE])
        # cured: pld.system.notify(signal, peer, [me, 0], 1, op=pld.NotifyOp.AtomicAdd)
        pld.system.notify(signal, peer, [me, 0], 1, op=pld.NotifyOp.AtomicAdd)
        # cured:
        pld.tensor.put(rows, peer, x, [me, 0], [peer, 0], [1, SIZE])
    for src in pl.range(n):
        pld.system.wait(signal, offsets=[src, 0], expected=1, cmp=pld.WaitCmp.Ge)
        y = pl.store(pl.load(rows, [src, 0], [1, SIZE]), [src, 0], y)
    return y


@pl.jit
def chip(
    x: pl.Tensor[[NR, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, SIZE], pl.FP32]],
    rows: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return exchange(x, y, rows, signal)


@pl.jit.host
def all_to_all(
    x: pl.Tensor[[NR, NR, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, NR, SIZE], pl.FP32]],
):
    n = pld.world_size()
    rows_buf = pld.alloc_window_buffer(n * SIZE * pl.FP32.get_byte())
    signal_buf = pld.alloc_window_buffer(n * pl.INT32.get_byte())
    for r in pl.range(n):
        rows = pld.window(rows_buf, [n, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [n, 1], dtype=pl.INT32)
        chip(x[r], y[r], rows, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    n = len(cards)
    x = torch.arange(n * n * SIZE, dtype=torch.float32).reshape(n, n, SIZE) + 1
    y = torch.zeros_like(x)
    all_to_all(x, y, config=config)
    assert torch.equal(y, x.transpose(0, 1)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
