# ranks: 2..3
# expects: races/unordered_read
# Each round fills a stage and sends it. The next round's fill comes after this one's, but not after the
# send, which only reads: nobody waits for readers.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 4
ROUNDS = 3
NR = pl.dynamic("NR")


@pl.jit.incore
def fill(
    x: pl.Tensor[[ROUNDS, SIZE], pl.FP32], stage: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    i: pl.Scalar[pl.INDEX],
):
    return pl.store(pl.mul(pl.load(x, [i, 0], [1, SIZE]), 2.0), [0, 0], stage)


@pl.jit.incore
def send(
    # cured: stage: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]],
    stage: pl.Tensor[[1, SIZE], pl.FP32],
    data: pl.InOut[pld.DistributedTensor[[ROUNDS, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    i: pl.Scalar[pl.INDEX],
):
    ctx = pld.get_comm_ctx(data)
    right = (pld.rank(ctx) + 1) % pld.nranks(ctx)
    pld.tile.remote_store(pl.load(stage, [0, 0], [1, SIZE]), data, peer=right, offsets=[i, 0])
    pld.system.notify(signal, peer=right, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)


@pl.jit.incore
def take(
    data: pl.InOut[pld.DistributedTensor[[ROUNDS, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    y: pl.Out[pl.Tensor[[ROUNDS, SIZE], pl.FP32]],
):
    pld.system.wait(signal, offsets=[0, 0], expected=ROUNDS, cmp=pld.WaitCmp.Ge)
    return pl.store(pl.load(data, [0, 0], [ROUNDS, SIZE]), [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[ROUNDS, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[ROUNDS, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[ROUNDS, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
):
    stage = pl.create_tensor([1, SIZE], pl.FP32)
    for i in pl.range(ROUNDS):
        stage = fill(x, stage, i)
        send(stage, data, signal, i)
    return take(data, signal, y)


@pl.jit.host
def rounds(
    x: pl.Tensor[[NR, ROUNDS, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, ROUNDS, SIZE], pl.FP32]]
):
    data_buf = pld.alloc_window_buffer(ROUNDS * SIZE * pl.FP32.get_byte())
    signal_buf = pld.alloc_window_buffer(pl.INT32.get_byte())
    for r in pl.range(pld.world_size()):
        data = pld.window(data_buf, [ROUNDS, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
        chip(x[r], y[r], data, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * ROUNDS * SIZE, dtype=torch.float32).reshape(-1, ROUNDS, SIZE) + 1
    y = torch.zeros_like(x)
    rounds(x, y, config=config)
    assert torch.equal(y, 2 * x.roll(1, 0)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
