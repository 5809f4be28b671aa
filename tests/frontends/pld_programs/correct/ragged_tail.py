# ranks: 2..4
# A length that no tile divides, free at the call: full tiles, then one of which only a part is data.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

TILE = 8
NR = pl.dynamic("NR")
LENGTH = pl.dynamic("LENGTH")


@pl.jit.incore
def copy_right(
    x: pl.Tensor[[1, LENGTH], pl.FP32],
    y: pl.Out[pl.Tensor[[1, LENGTH], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, LENGTH], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
    length: pl.Scalar[pl.INDEX],
):
    ctx = pld.get_comm_ctx(data)
    me = pld.rank(ctx)
    n = pld.nranks(ctx)
    for k in pl.range(0, length, TILE):
        rest = pl.min(length - k, TILE)
        data = pl.store(pl.load(x, [0, k], [1, TILE], valid_shape=[1, rest]), [0, k], data)
    signal = pld.tensor.barrier(signal)
    for k in pl.range(0, length, TILE):
        rest = pl.min(length - k, TILE)
        seen = pld.tile.remote_load(data, (me + 1) % n, [0, k], [1, TILE], valid_shape=[1, rest])
        y = pl.store(pl.add(seen, 1.0), [0, k], y)
    return y


@pl.jit
def chip(
    x: pl.Tensor[[1, LENGTH], pl.FP32],
    y: pl.Out[pl.Tensor[[1, LENGTH], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, LENGTH], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
    length: pl.Scalar[pl.INDEX],
):
    return copy_right(x, y, data, signal, length)


@pl.jit.host
def ragged_tail(
    x: pl.Tensor[[NR, 1, LENGTH], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, 1, LENGTH], pl.FP32]],
):
    data_buf = pld.alloc_window_buffer(LENGTH * pl.FP32.get_byte())
    signal_buf = pld.alloc_window_buffer(pld.world_size() * pl.INT32.get_byte())
    for r in pl.range(pld.world_size()):
        data = pld.window(data_buf, [1, LENGTH], dtype=pl.FP32)
        signal = pld.window(signal_buf, [pld.world_size(), 1], dtype=pl.INT32)
        chip(x[r], y[r], data, signal, LENGTH, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    length = 19
    x = torch.arange(len(cards) * length, dtype=torch.float32).reshape(len(cards), 1, length) + 1
    y = torch.zeros_like(x)
    ragged_tail(x, y, config=config)
    assert torch.equal(y, x.roll(-1, 0) + 1), f"{y.tolist()}"


if __name__ == "__main__":
    main()
