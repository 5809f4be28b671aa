# ranks: 2..4
# Reduce-scatter then all-gather around the ring, one row of the signal window a round: written as a
# @pl.program class whose sizes come from the function that builds it.
import argparse

import pypto.language as pl
import pypto.language.distributed as pld
import torch
from pypto import ir
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

PART = 4


def build(ranks: int):
    size = PART * ranks
    rounds = 2 * (ranks - 1)

    @pl.program
    class Ring:
        @pl.function(type=pl.FunctionType.InCore)
        def turn(
            self,
            x: pl.Tensor[[1, size], pl.FP32],
            y: pl.Out[pl.Tensor[[1, size], pl.FP32]],
            parts: pl.InOut[pld.DistributedTensor[[1, size], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[rounds, ranks], pl.INT32]],
            part: pl.Scalar[pl.INDEX],
        ) -> pl.Tensor[[1, size], pl.FP32]:
            ctx = pld.get_comm_ctx(parts)
            me = pld.rank(ctx)
            n = pld.nranks(ctx)
            left = (me + n - 1) % n
            for p in pl.range(n):
                pl.store(pl.load(x, [0, p * part], [1, PART]), [0, p * part], parts)
            for k in pl.range(2 * (n - 1)):
                for peer in pl.range(n):
                    if peer != me:
                        pld.system.notify(
                            signal, peer=peer, offsets=[k, me], value=1, op=pld.NotifyOp.AtomicAdd
                        )
                for src in pl.range(n):
                    if src != me:
                        pld.system.wait(signal, offsets=[k, src], expected=1, cmp=pld.WaitCmp.Ge)
                # what the left neighbour finished in the round before; a rank's own part is complete
                # after n - 1 rounds of adding, and then goes round unchanged
                place = (left + 2 * n - k) % n
                seen = pld.tile.remote_load(parts, peer=left, offsets=[0, place * part], shape=[1, PART])
                if k < n - 1:
                    seen = pl.add(seen, pl.load(parts, [0, place * part], [1, PART]))
                pl.store(seen, [0, place * part], parts)
            for p in pl.range(n):
                y = pl.store(pl.load(parts, [0, p * part], [1, PART]), [0, p * part], y)
            return y

        @pl.function(type=pl.FunctionType.Orchestration)
        def chip(
            self,
            x: pl.Tensor[[1, size], pl.FP32],
            y: pl.Out[pl.Tensor[[1, size], pl.FP32]],
            parts: pl.InOut[pld.DistributedTensor[[1, size], pl.FP32]],
            signal: pl.InOut[pld.DistributedTensor[[rounds, ranks], pl.INT32]],
            part: pl.Scalar[pl.INDEX],
        ) -> pl.Tensor[[1, size], pl.FP32]:
            return self.turn(x, y, parts, signal, part)

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def ring_all_reduce(
            self,
            x: pl.Tensor[[ranks, 1, size], pl.FP32],
            y: pl.Out[pl.Tensor[[ranks, 1, size], pl.FP32]],
        ) -> pl.Tensor[[ranks, 1, size], pl.FP32]:
            parts_buf = pld.alloc_window_buffer([1, size], dtype=pl.FP32)
            signal_buf = pld.alloc_window_buffer([rounds, ranks], dtype=pl.INT32)
            for r in pl.range(pld.world_size()):
                parts = pld.window(parts_buf, [1, size], dtype=pl.FP32)
                signal = pld.window(signal_buf, [rounds, ranks], dtype=pl.INT32)
                self.chip(x[r], y[r], parts, signal, PART, device=r)
            return y

    return Ring


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0,1", help="card ids, separated by commas")
    cards = [int(card) for card in parser.parse_args().device.split(",")]
    config = RunConfig(platform="a2a3sim", distributed_config=DistributedConfig(device_ids=cards))
    x = torch.arange(len(cards) ** 2 * PART, dtype=torch.float32).reshape(len(cards), 1, -1) + 1
    y = torch.zeros_like(x)
    program = build(len(cards))
    compiled = ir.compile(program, platform="a2a3sim", distributed_config=config.distributed_config)
    compiled(x, y)
    assert torch.equal(y, x.sum(0, keepdim=True).expand_as(x)), f"{y.tolist()}"


if __name__ == "__main__":
    main()
