# ranks: 2..4
# Barrier, all-reduce and all-gather in one kernel, one after the other on the same signal window.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def chain(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    rows: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(data)
    me = pld.rank(ctx)
    data = pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], data)
    data = pld.tensor.allreduce(data, signal)
    total = pl.load(data, [0, 0], [1, SIZE])
    signal = pld.tensor.barrier(signal)
    data = pl.store(pl.mul(total, pl.cast(me + 1, pl.FP32)), [0, 0], data)
    rows = pld.tensor.allgather(data, rows, signal)
    for k in pl.range(pld.nranks(ctx)):
        y = pl.store(pl.load(rows, [k, 0], [1, SIZE]), [k, 0], y)
    return y


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    rows: pl.InOut[pld.DistributedTensor[[NR, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return chain(x, y, data, rows, signal)


@pl.jit.host
def built_in_chain(x: pl.Tensor[[NR, 1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, NR, SIZE], pl.FP32]]):
    n = pld.world_size()
    data_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
    rows_buf = pld.alloc_window_buffer(n * SIZE * pl.FP32.get_byte())
    signal_buf = pld.alloc_window_buffer(n * pl.INT32.get_byte())
    for r in pl.range(n):
        data = pld.window(data_buf, [1, SIZE], dtype=pl.FP32)
        rows = pld.window(rows_buf, [n, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [n, 1], dtype=pl.INT32)
        chip(x[r], y[r], data, rows, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    n = len(cards)
    x = torch.arange(n * SIZE, dtype=torch.float32).reshape(n, 1, SIZE) + 1
    y = torch.zeros((n, n, SIZE))
    built_in_chain(x, y, config=config)
    rows = x.sum(0) * torch.arange(1, n + 1).reshape(n, 1)
    assert torch.equal(y, rows.expand(n, n, SIZE)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
