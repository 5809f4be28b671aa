# ranks: 2..4
# expects: pld/pipeline_without_chunks
# A pipelined put must say how large its chunks are.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def push(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    src: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    dst: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(src)
    me = pld.rank(ctx)
    n = pld.nranks(ctx)
    src = pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], src)
    right = (me + 1) % n
    # cured: pld.tensor.put(dst, peer=right, src=src, chunk_rows=1, chunk_cols=4, pipeline=True)
    pld.tensor.put(dst, peer=right, src=src, pipeline=True)
    pld.system.notify(signal, peer=right, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    pld.system.wait(signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    return pl.store(pl.load(dst, [0, 0], [1, SIZE]), [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    src: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    dst: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
):
    return push(x, y, src, dst, signal)


@pl.jit.host
def pipelined(x: pl.Tensor[[NR, 1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, SIZE], pl.FP32]]):
    src_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
    dst_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
    signal_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        src = pld.window(src_buf, [1, SIZE], dtype=pl.FP32)
        dst = pld.window(dst_buf, [1, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
        chip(x[r], y[r], src, dst, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * SIZE, dtype=torch.float32).reshape(len(cards), 1, SIZE) + 1
    y = torch.zeros_like(x)
    pipelined(x, y, config=config)
    assert torch.equal(y, x.roll(1, 0)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
