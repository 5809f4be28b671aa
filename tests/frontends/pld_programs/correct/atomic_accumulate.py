# ranks: 2..4
# All ranks add into rank 0's window at once, atomically, and count themselves in one shared cell; rank 0
# waits for the whole count. The others return early.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def gather_sum(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    total: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(total)
    me = pld.rank(ctx)
    pld.tensor.put(total, peer=0, src=x, atomic=pld.AtomicType.Add)
    pld.system.notify(signal, peer=0, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    if me != 0:
        return y
    pld.system.wait(signal, offsets=[0, 0], expected=pld.nranks(ctx), cmp=pld.WaitCmp.Ge)
    return pl.store(pl.load(total, [0, 0], [1, SIZE]), [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    total: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
):
    return gather_sum(x, y, total, signal)


@pl.jit.host
def atomic_accumulate(x: pl.Tensor[[NR, 1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, SIZE], pl.FP32]]):
    total_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
    signal_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        total = pld.window(total_buf, [1, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
        chip(x[r], y[r], total, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * SIZE, dtype=torch.float32).reshape(len(cards), 1, SIZE) + 1
    y = torch.zeros_like(x)
    atomic_accumulate(x, y, config=config)
    assert torch.equal(y[0], x.sum(0)), f"{y[0].tolist()}"
    assert not y[1:].any()


if __name__ == "__main__":
    main()
