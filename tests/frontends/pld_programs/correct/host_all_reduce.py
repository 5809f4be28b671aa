# ranks: 2..4
# The host's own collective between two rounds of dispatches: stage, all-reduce, read back.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def stage(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
):
    return pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], data)


@pl.jit
def publish(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
):
    return stage(x, data)


@pl.jit.incore
def unstage(
    data: pld.DistributedTensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
):
    return pl.store(pl.load(data, [0, 0], [1, SIZE]), [0, 0], y)


@pl.jit
def consume(
    data: pld.DistributedTensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
):
    return unstage(data, y)


@pl.jit.host
def host_all_reduce(x: pl.Tensor[[NR, 1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, SIZE], pl.FP32]]):
    data_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
    signal_buf = pld.alloc_window_buffer(pld.world_size() * pl.INT32.get_byte())
    data = pld.window(data_buf, [1, SIZE], dtype=pl.FP32)
    signal = pld.window(signal_buf, [pld.world_size()], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        publish(x[r], data, device=r)
    data = pld.tensor.allreduce(data, signal, op=pld.ReduceOp.Max)
    for r in pl.range(pld.world_size()):
        consume(data, y[r], device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * SIZE, dtype=torch.float32).reshape(len(cards), 1, SIZE) + 1
    y = torch.zeros_like(x)
    host_all_reduce(x, y, config=config)
    assert torch.equal(y, x.max(0, keepdim=True).values.expand_as(x)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
