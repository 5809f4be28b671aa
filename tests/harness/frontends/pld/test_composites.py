"""Every collective in a kernel: right in any order of events, and where it is not.

Annotations of pld functions are evaluated where they stand: no `from __future__ import annotations`.
"""

import pytest
import torch

from harness.frontends.pypto.composites import boundaries, spans
from harness.frontends.pypto.modules import modules

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
REDUCE = {
    pld.ReduceOp.Sum: lambda rows: rows.sum(0), pld.ReduceOp.Max: lambda rows: rows.amax(0),
    pld.ReduceOp.Min: lambda rows: rows.amin(0), pld.ReduceOp.Prod: lambda rows: rows.prod(0),
}
PLANS = 40
TORCH = {pl.FP32: torch.float32, pl.FP16: torch.float16}


def values(ranks, *shape, dtype=torch.float32):
    """Small whole numbers, different for each rank and element."""
    count = ranks * torch.Size(shape).numel()
    return (torch.arange(count) % 61 + 1).reshape(ranks, *shape).to(dtype)


def allreduce(ranks, size, op, dtype, mode, calls=1):
    """A host function: stage, all-reduce in a kernel on one signal `calls` times, read back each time."""
    rows, cells = (2 * (ranks - 1) or 1, ranks) if mode == "ring" else (ranks, 1)

    @pl.jit.incore
    def kernel(
        x: pl.Tensor[[calls, size], dtype], y: pl.Out[pl.Tensor[[calls, size], dtype]],
        data: pl.InOut[pld.DistributedTensor[[1, size], dtype]],
        signal: pl.InOut[pld.DistributedTensor[[rows, cells], pl.INT32]],
    ):
        for k in pl.range(calls):
            data[0:1, 0:size] = x[k : k + 1, 0:size]
            data = pld.tensor.allreduce(data, signal, op=op, mode=mode)
            y[k : k + 1, 0:size] = data[0:1, 0:size]
        return y

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, calls, size], dtype], y: pl.Out[pl.Tensor[[ranks, calls, size], dtype]]
    ):
        data_buf = pld.alloc_window_buffer([1, size], dtype=dtype)
        signal_buf = pld.alloc_window_buffer([rows, cells], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            data = pld.window(data_buf, [1, size], dtype=dtype)
            signal = pld.window(signal_buf, [rows, cells], dtype=pl.INT32)
            kernel(x[r], y[r], data, signal, device=r)

    return host


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", ["mesh", "ring"])
@pytest.mark.parametrize(("size", "dtype"), [(5, pl.FP32), (33, pl.FP16), (4100, pl.FP32)])
def test_all_reduce_of_kernels(called, ranks, mode, size, dtype):
    x = values(ranks, 1, size, dtype=TORCH[dtype])
    y = torch.zeros_like(x)
    for op, reduce in REDUCE.items():
        if op == pld.ReduceOp.Prod:
            x = (x % 2 + 1).to(x.dtype)
        expected = reduce(x.float()).to(x.dtype).expand_as(x)
        function = allreduce(ranks, size, op, dtype, mode)
        assert called(function, x, y, ranks=ranks, y=expected).names() == []


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("mode", ["mesh", "ring"])
def test_all_reduces_in_a_row_are_clean(called, ranks, mode):
    x = values(ranks, 3, 8)
    y = torch.zeros_like(x)
    function = allreduce(ranks, 8, pld.ReduceOp.Sum, pl.FP32, mode, calls=3)
    assert called(function, x, y, ranks=ranks, y=x.sum(0).expand_as(x)).hunted(PLANS) == ""


def rows_program(ranks, collective, calls=1, rest=False):
    """Stage rows, one collective that moves rows, read all rows back. rest: a barrier after reading."""
    width = 4

    @pl.jit.incore
    def kernel(
        x: pl.Tensor[[calls, ranks, width], pl.FP32],
        y: pl.Out[pl.Tensor[[calls, ranks, width], pl.FP32]],
        mine: pl.InOut[pld.DistributedTensor[[ranks, width], pl.FP32]],
        rows: pl.InOut[pld.DistributedTensor[[ranks, width], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
    ):
        me = pld.rank(pld.get_comm_ctx(rows))
        for k in pl.range(calls):
            if collective == "allgather":
                rows = pld.tensor.allgather(x[k, me : me + 1, 0:width], rows, signal)
            elif collective == "all_to_all":
                mine[0:ranks, 0:width] = x[k]
                rows = pld.tensor.all_to_all(mine, rows, signal)
            elif collective == "reduce_scatter":
                rows[0:ranks, 0:width] = x[k]
                rows = pld.tensor.reduce_scatter(rows, signal)
            else:
                if me == ranks - 1:
                    rows[0:ranks, 0:width] = x[k]
                rows = pld.tensor.broadcast(rows, signal, root=ranks - 1)
            if collective == "reduce_scatter":
                y[k, me : me + 1, 0:width] = rows[me : me + 1, 0:width]
            else:
                y[k, 0:ranks, 0:width] = rows[0:ranks, 0:width]
            if rest:
                signal = pld.tensor.barrier(signal)
        return y

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, calls, ranks, width], pl.FP32],
        y: pl.Out[pl.Tensor[[ranks, calls, ranks, width], pl.FP32]],
    ):
        mine_buf = pld.alloc_window_buffer([ranks, width], dtype=pl.FP32)
        rows_buf = pld.alloc_window_buffer([ranks, width], dtype=pl.FP32)
        signal_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            mine = pld.window(mine_buf, [ranks, width], dtype=pl.FP32)
            rows = pld.window(rows_buf, [ranks, width], dtype=pl.FP32)
            signal = pld.window(signal_buf, [ranks, 1], dtype=pl.INT32)
            kernel(x[r], y[r], mine, rows, signal, device=r)

    return host


def moved(collective, x):
    """[ranks, calls, ranks, width]: what each rank should have read."""
    ranks = len(x)
    if collective == "allgather":
        gathered = torch.stack([x[r, :, r] for r in range(ranks)], 1)
        return gathered.expand(ranks, *gathered.shape)
    if collective == "all_to_all":
        return x.transpose(0, 2).contiguous()
    if collective == "broadcast":
        return x[-1].expand_as(x)
    total = torch.zeros_like(x)
    for r in range(ranks):
        total[r, :, r] = x[:, :, r].sum(0)
    return total


MOVING = ("allgather", "all_to_all", "broadcast", "reduce_scatter")


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("collective", MOVING)
def test_collectives_that_move_rows(called, ranks, collective):
    x = values(ranks, 1, ranks, 4)
    call = called(
        rows_program(ranks, collective), x, torch.zeros_like(x), ranks=ranks, y=moved(collective, x)
    )
    assert call.names() == []
    assert call.hunted(PLANS) == ""


@pytest.mark.parametrize("collective", MOVING)
def test_two_in_a_row(called, collective):
    """What lacks a last barrier is overwritten while a slower rank reads; one of one's own helps."""
    x = values(3, 2, 3, 4)
    expected = moved(collective, x)
    bare = called(rows_program(3, collective, calls=2), x, torch.zeros_like(x), ranks=3, y=expected)
    rested = called(
        rows_program(3, collective, calls=2, rest=True), x, torch.zeros_like(x), ranks=3, y=expected
    )
    hazard = bare.hunted(PLANS)
    if collective == "reduce_scatter":
        assert hazard == ""
    else:
        assert hazard.startswith(("races/", "integrity/", "lifetime/"))
    assert rested.hunted(PLANS) == ""


def test_all_to_all_v_counts_rows_and_moves_blocks(called):
    ranks, capacity, width = 3, 2, 4

    @pl.jit.incore
    def kernel(
        x: pl.Tensor[[ranks * capacity, width], pl.FP32], counts: pl.Tensor[[ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[ranks * capacity, width], pl.FP32]],
        got: pl.Out[pl.Tensor[[ranks, 1], pl.INT32]],
        rows: pl.InOut[pld.DistributedTensor[[ranks * capacity, width], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        received: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
    ):
        rows = pld.tensor.all_to_all_v(x, rows, signal, counts, received)
        y[0 : ranks * capacity, 0:width] = rows[0 : ranks * capacity, 0:width]
        got[0:ranks, 0:1] = received[0:ranks, 0:1]
        return y, got

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, ranks * capacity, width], pl.FP32],
        counts: pl.Tensor[[ranks, ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[ranks, ranks * capacity, width], pl.FP32]],
        got: pl.Out[pl.Tensor[[ranks, ranks, 1], pl.INT32]],
    ):
        rows_buf = pld.alloc_window_buffer([ranks * capacity, width], dtype=pl.FP32)
        signal_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        received_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            rows = pld.window(rows_buf, [ranks * capacity, width], dtype=pl.FP32)
            signal = pld.window(signal_buf, [ranks, 1], dtype=pl.INT32)
            received = pld.window(received_buf, [ranks, 1], dtype=pl.INT32)
            kernel(x[r], counts[r], y[r], got[r], rows, signal, received, device=r)

    x = values(ranks, ranks * capacity, width)
    counts = torch.tensor([[0, 1, 2], [5, 2, 0], [1, 1, 1]], dtype=torch.int32).reshape(3, 3, 1)
    blocks = x.reshape(ranks, ranks, capacity, width).transpose(0, 1).reshape(x.shape)
    call = called(
        host, x, counts, torch.zeros_like(x), torch.zeros_like(counts), ranks=ranks, y=blocks,
        got=counts.transpose(0, 1).clamp(max=capacity),
    )
    assert call.names() == []
    assert call.hunted(PLANS) == ""


@pytest.mark.parametrize(("size", "parts", "step", "edges"), [
    (10, 4, 1, [0, 2, 5, 7, 10]), (2, 4, 1, [0, 0, 1, 1, 2]), (35, 2, 16, [0, 32, 35]),
    (8, 1, 1, [0, 8]), (17, 4, 16, [0, 16, 16, 16, 17]),
])
def test_segments_of_a_ring(size, parts, step, edges):
    assert boundaries(size, parts, step) == edges


def test_spans():
    assert list(spans(3, 5, 2)) == [(3, 2), (5, 2), (7, 1)]
    assert list(spans(3, 0, 2)) == []
