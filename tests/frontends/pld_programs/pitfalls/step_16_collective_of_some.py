# ranks: 2..4
# expects: deadlock/missing_notify
# The root leaves before the last barrier, to which all must come.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def together(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    me = pld.rank(pld.get_comm_ctx(data))
    if me == 0:
        data = pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], data)
    data = pld.tensor.broadcast(data, signal, root=0)
    y = pl.store(pl.load(data, [0, 0], [1, SIZE]), [0, 0], y)
    # cured: signal = pld.tensor.barrier(signal)
    # cured: if me == 0:
    if me == 0:
        return y
    # cured:
    signal = pld.tensor.barrier(signal)
    seen = pld.tile.remote_load(data, peer=0, offsets=[0, 0], shape=[1, SIZE])
    return pl.store(pl.add(seen, pl.load(y, [0, 0], [1, SIZE])), [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[NR, 1], pl.INT32]],
):
    return together(x, y, data, signal)


@pl.jit.host
def all_together(x: pl.Tensor[[NR, 1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, SIZE], pl.FP32]]):
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
    x = torch.arange(len(cards) * SIZE, dtype=torch.float32).reshape(len(cards), 1, SIZE) + 1
    y = torch.zeros_like(x)
    all_together(x, y, config=config)
    assert torch.equal(y, torch.cat([x[:1], 2 * x[:1].expand(len(cards) - 1, 1, SIZE)])), f"{y.tolist()}"


if __name__ == "__main__":
    main()
