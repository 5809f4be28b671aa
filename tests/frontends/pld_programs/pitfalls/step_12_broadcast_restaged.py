# ranks: 2..4
# expects: lifetime/overwritten_while_read
# Two broadcasts in a row: the root stages the second message while others may still be pulling the first.
# A broadcast does not end with a barrier of its own.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def two_messages(
    x: pl.Tensor[[2, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[2, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    me = pld.rank(pld.get_comm_ctx(data))
    for k in pl.range(2):
        if me == 0:
            data = pl.store(pl.load(x, [k, 0], [1, SIZE]), [0, 0], data)
        data = pld.tensor.broadcast(data, signal, root=0)
        # cured: y = pl.store(pl.load(data, [0, 0], [1, SIZE]), [k, 0], y)
        # cured: signal = pld.tensor.barrier(signal)
        y = pl.store(pl.load(data, [0, 0], [1, SIZE]), [k, 0], y)
    return y


@pl.jit
def chip(
    x: pl.Tensor[[2, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[2, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return two_messages(x, y, data, signal)


@pl.jit.host
def broadcast(x: pl.Tensor[[NR, 2, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, 2, SIZE], pl.FP32]]):
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
    broadcast(x, y, config=config)
    assert torch.equal(y, x[:1].expand_as(x)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
