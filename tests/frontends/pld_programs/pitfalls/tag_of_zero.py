# ranks: 2..4
# expects: pld/tag_of_zero
# Rank 0's tag is 0, and its neighbour waits for at least 1.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

NR = pl.dynamic("NR")


@pl.jit.incore
def handshake(
    y: pl.Out[pl.Tensor[[1, 1], pl.INT32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    peer: pl.Scalar[pl.INT32],
    tag: pl.Scalar[pl.INT32],
):
    pld.system.notify(signal, peer=peer, offsets=[0, 0], value=tag, op=pld.NotifyOp.Set)
    pld.system.wait(signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    pl.write(y, [0, 0], pl.read(signal, [0, 0]))
    return y


@pl.jit
def chip(
    y: pl.Out[pl.Tensor[[1, 1], pl.INT32]],
    signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
    peer: pl.Scalar[pl.INT32],
    tag: pl.Scalar[pl.INT32],
):
    return handshake(y, signal, peer, tag)


@pl.jit.host
def tags(y: pl.Out[pl.Tensor[[NR, 1, 1], pl.INT32]]):
    signal_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
        # cured: chip(y[r], signal, (r + 1) % pld.world_size(), r + 1, device=r)
        chip(y[r], signal, (r + 1) % pld.world_size(), r, device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    y = torch.zeros((len(cards), 1, 1), dtype=torch.int32)
    tags(y, config=config)
    assert y.flatten().tolist() == [len(cards), *range(1, len(cards))], f"{y.tolist()}"


if __name__ == "__main__":
    main()
