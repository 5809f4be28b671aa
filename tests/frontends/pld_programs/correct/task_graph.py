# ranks: 2..4
# Tasks of a chip: each waiter gives its core back until the signal is there, its consumer depends on it,
# and the publisher comes last. In order and on one core this would block; as tasks it does not.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
WAITERS = 3
NR = pl.dynamic("NR")


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.INT32],
    y: pl.Out[pl.Tensor[[WAITERS, SIZE], pl.INT32]],
    inbox: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.INT32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    peer: pl.Scalar[pl.INT32],
):
    with pl.manual_scope():
        for k in pl.range(WAITERS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="waiter") as waiter:
                pld.system.defer_wait(signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="consumer", deps=[waiter]):
                y = pl.store(pl.load(inbox, [0, 0], [1, SIZE]), [k, 0], y)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="publisher"):
            pld.tile.remote_store(pl.load(x, [0, 0], [1, SIZE]), inbox, peer=peer, offsets=[0, 0])
            pld.system.notify(signal, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.Set)
    return y


@pl.jit.host
def task_graph(
    x: pl.Tensor[[NR, 1, SIZE], pl.INT32],
    y: pl.Out[pl.Tensor[[NR, WAITERS, SIZE], pl.INT32]],
):
    inbox_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.INT32)
    signal_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        inbox = pld.window(inbox_buf, [1, SIZE], dtype=pl.INT32)
        signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
        chip(x[r], y[r], inbox, signal, (r + 1) % pld.world_size(), device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * SIZE, dtype=torch.int32).reshape(len(cards), 1, SIZE) + 1
    y = torch.zeros((len(cards), WAITERS, SIZE), dtype=torch.int32)
    task_graph(x, y, config=config)
    assert torch.equal(y, x.roll(1, 0).expand(-1, WAITERS, -1)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
