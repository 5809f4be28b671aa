# ranks: 2..4
# A block goes to the right neighbour in chunks, two at a time, and its last column by itself.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

ROWS, COLUMNS = 4, 8
NR = pl.dynamic("NR")


@pl.jit.incore
def push(
    x: pl.Tensor[[ROWS, COLUMNS], pl.FP16],
    y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP16]],
    inbox: pl.InOut[pld.DistributedTensor[[ROWS, COLUMNS], pl.FP16]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
):
    ctx = pld.get_comm_ctx(inbox)
    n = pld.nranks(ctx)
    right = (pld.rank(ctx) + 1) % n
    pld.tensor.put(
        inbox, right, x, [0, 0], [0, 0], [ROWS, COLUMNS - 2], chunk_rows=2, chunk_cols=4, pipeline=True
    )
    edge = pl.load(x, [0, COLUMNS - 2], [ROWS, 2])
    pld.tile.remote_store(edge, inbox, peer=right, offsets=[0, COLUMNS - 2])
    pld.system.notify(signal, peer=right, offsets=[0, 0], value=1, op=pld.NotifyOp.Set)
    pld.system.wait(signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Eq)
    return pl.store(pl.load(inbox, [0, 0], [ROWS, COLUMNS]), [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[ROWS, COLUMNS], pl.FP16],
    y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP16]],
    inbox: pl.InOut[pld.DistributedTensor[[ROWS, COLUMNS], pl.FP16]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
):
    return push(x, y, inbox, signal)


@pl.jit.host
def pipelined_put(
    x: pl.Tensor[[NR, ROWS, COLUMNS], pl.FP16],
    y: pl.Out[pl.Tensor[[NR, ROWS, COLUMNS], pl.FP16]],
):
    inbox_buf = pld.alloc_window_buffer([ROWS, COLUMNS], dtype=pl.FP16)
    signal_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        inbox = pld.window(inbox_buf, [ROWS, COLUMNS], dtype=pl.FP16)
        signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
        chip(x[r], y[r], inbox, signal, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = (torch.arange(len(cards) * ROWS * COLUMNS) + 1).to(torch.float16).reshape(-1, ROWS, COLUMNS)
    y = torch.zeros_like(x)
    compiled = pipelined_put.compile(x, y, config=config)
    compiled(x, y, config=config)
    assert torch.equal(y, x.roll(1, 0)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
