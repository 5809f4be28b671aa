# ranks: 2..4
# expects: golden/check_failed or races/unordered_write
# Where a rank's row begins is off by one element: a row of garbage for the others, silently.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def all_gather(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, NR * SIZE], pl.FP32]],
    rows: pl.InOut[pld.DistributedTensor[[1, NR * SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(rows)
    me = pld.rank(ctx)
    n = pld.nranks(ctx)
    mine = pl.load(x, [0, 0], [1, SIZE])
    # cured: place = me * SIZE
    place = me * SIZE - pl.min(me, 1)
    for peer in pl.range(n):
        pld.tile.remote_store(mine, rows, peer=peer, offsets=[0, place])
    for peer in pl.range(n):
        if peer != me:
            pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    for src in pl.range(n):
        if src != me:
            pld.system.wait(signal, offsets=[src, 0], expected=1, cmp=pld.WaitCmp.Ge)
    for k in pl.range(n):
        y = pl.store(pl.load(rows, [0, k * SIZE], [1, SIZE]), [0, k * SIZE], y)
    return y


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, NR * SIZE], pl.FP32]],
    rows: pl.InOut[pld.DistributedTensor[[1, NR * SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return all_gather(x, y, rows, signal)


@pl.jit.host
def all_gather_rows(
    x: pl.Tensor[[NR, 1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, 1, NR * SIZE], pl.FP32]],
):
    n = pld.world_size()
    rows_buf = pld.alloc_window_buffer(n * SIZE * pl.FP32.get_byte())
    signal_buf = pld.alloc_window_buffer(n * pl.INT32.get_byte())
    for r in pl.range(n):
        rows = pld.window(rows_buf, [1, n * SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [n, 1], dtype=pl.INT32)
        chip(x[r], y[r], rows, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    n = len(cards)
    x = torch.arange(n * SIZE, dtype=torch.float32).reshape(n, 1, SIZE) + 1
    y = torch.zeros((n, 1, n * SIZE))
    all_gather_rows(x, y, config=config)
    assert torch.equal(y, x.reshape(1, 1, -1).expand_as(y)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
