# ranks: 2..4
# expects: pld/tensor_after_scalar
# A rank's number is passed between two tensors; the runtime takes tensors first, then scalars.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

SIZE = 8
NR = pl.dynamic("NR")


@pl.jit.incore
def hello(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    # cured: y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    rank: pl.Scalar[pl.INT32],
    # cured: rank: pl.Scalar[pl.INT32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
):
    return pl.store(pl.add(pl.load(x, [0, 0], [1, SIZE]), pl.cast(rank, pl.FP32)), [0, 0], y)


@pl.jit
def chip(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    # cured: y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    rank: pl.Scalar[pl.INT32],
    # cured: rank: pl.Scalar[pl.INT32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
):
    # cured: return hello(x, y, rank)
    return hello(x, rank, y)


@pl.jit.host
def hello_rank(
    x: pl.Tensor[[NR, 1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[NR, 1, SIZE], pl.FP32]],
):
    for r in pl.range(pld.world_size()):
        # cured: chip(x[r], y[r], r, device=r)
        chip(x[r], r, y[r], device=r)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) * SIZE, dtype=torch.float32).reshape(len(cards), 1, SIZE) + 1
    y = torch.zeros_like(x)
    hello_rank(x, y, config=config)
    assert torch.equal(y, x + torch.arange(len(cards)).reshape(-1, 1, 1)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
