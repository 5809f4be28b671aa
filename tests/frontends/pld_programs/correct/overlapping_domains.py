# ranks: 3
# Device 1 swaps with device 0 in one comm domain and with device 2 in another; ranks are counted anew in
# each domain. The windows are one-dimensional at the host and take the kernel's shape when passed.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8


@pl.jit.incore
def swap(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    peer: pl.Scalar[pl.INT32],
):
    data = pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], data)
    pld.system.notify(signal, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    pld.system.wait(signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    seen = pld.tile.remote_load(data, peer=peer, offsets=[0, 0], shape=[1, SIZE])
    return pl.store(seen, [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    peer: pl.Scalar[pl.INT32],
):
    return swap(x, y, data, signal, peer)


@pl.jit.host
def overlapping_domains(
    x: pl.Tensor[[3, 1, SIZE], pl.FP32],
    lower: pl.Out[pl.Tensor[[3, 1, SIZE], pl.FP32]],
    upper: pl.Out[pl.Tensor[[3, 1, SIZE], pl.FP32]],
):
    lower_buf = pld.alloc_window_buffer(SIZE * pl.FP32.get_byte())
    lower_signal_buf = pld.alloc_window_buffer(pl.INT32.get_byte())
    upper_buf = pld.alloc_window_buffer(SIZE * pl.FP32.get_byte())
    upper_signal_buf = pld.alloc_window_buffer(pl.INT32.get_byte())
    for r in pl.range(0, 2):
        data = pld.window(lower_buf, [SIZE], dtype=pl.FP32)
        signal = pld.window(lower_signal_buf, [1], dtype=pl.INT32)
        chip(x[r], lower[r], data, signal, 1 - r, device=r)
    for r in pl.range(1, 3):
        data = pld.window(upper_buf, [SIZE], dtype=pl.FP32)
        signal = pld.window(upper_signal_buf, [1], dtype=pl.INT32)
        chip(x[r], upper[r], data, signal, 2 - r, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1,2", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(3 * SIZE, dtype=torch.float32).reshape(3, 1, SIZE) + 1
    lower, upper = torch.zeros_like(x), torch.zeros_like(x)
    overlapping_domains(x, lower, upper, config=config)
    assert torch.equal(lower, torch.stack([x[1], x[0], 0 * x[0]])), f"{lower.tolist()}"
    assert torch.equal(upper, torch.stack([0 * x[0], x[2], x[1]])), f"{upper.tolist()}"


if __name__ == "__main__":
    main()
