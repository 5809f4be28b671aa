# ranks: 2
# expects: pld/mesh_and_ring_signal
# One buffer holds the cells of a mesh all-reduce and the rows of a ring all-reduce: the layouts overlap.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
N_RANKS = 2
ROUNDS = 2 * (N_RANKS - 1)


@pl.jit.incore
def both(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[ROUNDS, 2], pl.INT32]],
    cells: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
):
    data = pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], data)
    data = pld.tensor.allreduce(data, cells)
    data = pld.tensor.allreduce(data, signal, mode="ring")
    return pl.store(pl.load(data, [0, 0], [1, SIZE]), [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
    signal: pl.InOut[pld.DistributedTensor[[ROUNDS, 2], pl.INT32]],
    cells: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]],
):
    return both(x, y, data, signal, cells)


@pl.jit.host
def mesh_then_ring(
    x: pl.Tensor[[N_RANKS, 1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[N_RANKS, 1, SIZE], pl.FP32]],
):
    data_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
    signal_buf = pld.alloc_window_buffer([ROUNDS, N_RANKS], dtype=pl.INT32)
    # cured: cells_buf = pld.alloc_window_buffer([N_RANKS, 1], dtype=pl.INT32)
    cells_buf = signal_buf
    for r in pl.range(pld.world_size()):
        data = pld.window(data_buf, [1, SIZE], dtype=pl.FP32)
        signal = pld.window(signal_buf, [ROUNDS, N_RANKS], dtype=pl.INT32)
        cells = pld.window(cells_buf, [N_RANKS, 1], dtype=pl.INT32)
        chip(x[r], y[r], data, signal, cells, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * SIZE, dtype=torch.float32).reshape(len(cards), 1, SIZE) + 1
    y = torch.zeros_like(x)
    mesh_then_ring(x, y, config=config)
    assert torch.equal(y, 2 * x.sum(0, keepdim=True).expand_as(x)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
