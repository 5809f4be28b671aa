# ranks: 2..4
# Every rank sends another number of rows to each; the counts travel with them, and say how far a kernel's
# loop goes.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
ROWS = 3  # the most that one rank sends to another


def build(ranks: int):
    total = ranks * ROWS

    @pl.jit.incore
    def exchange(
        x: pl.Tensor[[total, SIZE], pl.FP32],
        counts: pl.Tensor[[ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[total, SIZE], pl.FP32]],
        got: pl.Out[pl.Tensor[[ranks, 1], pl.INT32]],
        data: pl.InOut[pld.DistributedTensor[[total, SIZE], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        arrived: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
    ):
        data = pld.tensor.all_to_all_v(x, data, signal, counts, arrived)
        for src in pl.range(ranks):
            rows = pl.read(arrived, [src, 0])
            pl.write(got, [src, 0], rows)
            for k in pl.range(pl.cast(rows, pl.INDEX)):
                pl.store(pl.load(data, [src * ROWS + k, 0], [1, SIZE]), [src * ROWS + k, 0], y)
        return y, got

    @pl.jit
    def chip(
        x: pl.Tensor[[total, SIZE], pl.FP32],
        counts: pl.Tensor[[ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[total, SIZE], pl.FP32]],
        got: pl.Out[pl.Tensor[[ranks, 1], pl.INT32]],
        data: pl.InOut[pld.DistributedTensor[[total, SIZE], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        arrived: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
    ):
        return exchange(x, counts, y, got, data, signal, arrived)

    @pl.jit.host
    def ragged_exchange(
        x: pl.Tensor[[ranks, total, SIZE], pl.FP32],
        counts: pl.Tensor[[ranks, ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[ranks, total, SIZE], pl.FP32]],
        got: pl.Out[pl.Tensor[[ranks, ranks, 1], pl.INT32]],
    ):
        data_buf = pld.alloc_window_buffer([total, SIZE], dtype=pl.FP32)
        signal_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        arrived_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            data = pld.window(data_buf, [total, SIZE], dtype=pl.FP32)
            signal = pld.window(signal_buf, [ranks, 1], dtype=pl.INT32)
            arrived = pld.window(arrived_buf, [ranks, 1], dtype=pl.INT32)
            chip(x[r], counts[r], y[r], got[r], data, signal, arrived, device=r)

    return ragged_exchange


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    n = len(cards)
    x = torch.arange(n * n * ROWS * SIZE, dtype=torch.float32).reshape(n, n * ROWS, SIZE) + 1
    counts = torch.tensor([[(src + 2 * dst) % (ROWS + 1) for dst in range(n)] for src in range(n)])
    counts = counts.to(torch.int32).unsqueeze(-1)
    y, got = torch.zeros_like(x), torch.zeros_like(counts)
    build(n)(x, counts, y, got, config=config)
    assert torch.equal(got, counts.transpose(0, 1)), f"{got.tolist()}"
    for src in range(n):
        for dst in range(n):
            for k in range(ROWS):
                sent = x[src, dst * ROWS + k] if k < counts[src, dst, 0] else torch.zeros(SIZE)
                assert torch.equal(y[dst, src * ROWS + k], sent), (src, dst, k)


if __name__ == "__main__":
    main()
