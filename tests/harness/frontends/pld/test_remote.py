"""Signals and memory between ranks: what they do, and each rule of theirs, broken and kept.

Annotations of pld functions are evaluated where they stand: no `from __future__ import annotations`.
"""

import pytest
import torch

from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.remote import pieces

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
ROWS, COLS = 4, 6
PLANS = 30


def program(step, dtype=pl.FP32):
    """A host function whose kernel is `step(x, y, data, other, signal, me, n)`."""

    @pl.jit.incore
    def kernel(
        x: pl.Tensor[[ROWS, COLS], dtype], y: pl.Out[pl.Tensor[[ROWS, COLS], dtype]],
        data: pl.InOut[pld.DistributedTensor[[ROWS, COLS], dtype]],
        other: pl.InOut[pld.DistributedTensor[[ROWS, COLS], dtype]],
        signal: pl.InOut[pld.DistributedTensor[[ROWS, 2], pl.INT32]],
    ):
        ctx = pld.get_comm_ctx(data)
        step(x, y, data, other, signal, pld.rank(ctx), pld.nranks(ctx))

    @pl.jit.host
    def host(
        x: pl.Tensor[[NR, ROWS, COLS], dtype], y: pl.Out[pl.Tensor[[NR, ROWS, COLS], dtype]]
    ):
        data_buf = pld.alloc_window_buffer([ROWS, COLS], dtype=dtype)
        other_buf = pld.alloc_window_buffer([ROWS, COLS], dtype=dtype)
        signal_buf = pld.alloc_window_buffer([ROWS, 2], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            data = pld.window(data_buf, [ROWS, COLS], dtype=dtype)
            other = pld.window(other_buf, [ROWS, COLS], dtype=dtype)
            signal = pld.window(signal_buf, [ROWS, 2], dtype=pl.INT32)
            kernel(x[r], y[r], data, other, signal, device=r)

    return host


NR = pl.dynamic("NR")


def values(ranks, dtype=torch.float32):
    count = ranks * ROWS * COLS
    return (torch.arange(count) + 1).reshape(ranks, ROWS, COLS).to(dtype)


def tell(signal, peer, value=1, op=pld.NotifyOp.AtomicAdd):
    pld.system.notify(signal, peer, [0, 1], value, op=op)


def hear(signal, value=1, cmp=pld.WaitCmp.Ge):
    pld.system.wait(signal, [0, 1], value, cmp=cmp)


# What they do -------------------------------------------------------------------------------------


def shift_by_put(x, y, data, other, signal, me, n):
    pld.tensor.put(data, (me + 1) % n, x, chunk_rows=2, chunk_cols=4, pipeline=True)
    tell(signal, (me + 1) % n)
    hear(signal)
    y[0:ROWS, 0:COLS] = data[0:ROWS, 0:COLS]


def shift_by_get(x, y, data, other, signal, me, n):
    data[0:ROWS, 0:COLS] = x[0:ROWS, 0:COLS]
    tell(signal, (me + 1) % n)
    hear(signal)
    pld.tensor.get(y, (me - 1 + n) % n, data, chunk_rows=3)


def shift_by_remote_load(x, y, data, other, signal, me, n):
    data[0:ROWS, 0:COLS] = x[0:ROWS, 0:COLS]
    tell(signal, (me + 1) % n)
    hear(signal)
    left = (me + n - 1) % n
    tile = pld.tile.remote_load(data, left, [0, 0], [8, 8], valid_shape=[ROWS, COLS])
    assert tile.shape == (8, 8)
    pl.store(tile, [0, 0], y)


def shift_by_remote_store(x, y, data, other, signal, me, n):
    right = (me + 1) % n
    pld.remote_store(pl.load(x, [0, 0], [ROWS, 4]), data, right, [0, 0])
    pld.tile.remote_store(src_tile=pl.load(x, [0, 4], [ROWS, 2]), target=data, peer=right, offsets=[0, 4])
    tell(signal, right)
    hear(signal)
    y[0:ROWS, 0:COLS] = data[0:ROWS, 0:COLS]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "step", [shift_by_put, shift_by_get, shift_by_remote_load, shift_by_remote_store]
)
def test_shift(called, step, ranks):
    x = values(ranks)
    call = called(program(step), x, torch.zeros_like(x), ranks=ranks, y=x.roll(1, 0))
    assert call.names() == []
    assert call.hunted(PLANS) == ""


def told_first(x, y, data, other, signal, me, n):
    tell(signal, (me + 1) % n)
    shift_by_put(x, y, data, other, signal, me, n)


def test_a_put_that_is_told_of_too_early_is_found(called):
    x = values(2)
    call = called(program(told_first), x, torch.zeros_like(x), ranks=2, y=x.roll(1, 0))
    assert call.hunted(PLANS).startswith(("races/", "integrity/"))


def sum_at_zero(x, y, data, other, signal, me, n):
    pld.tensor.put(data, 0, x, atomic=pld.AtomicType.Add)
    pld.remote_store(pl.load(x, [1, 0], [1, COLS]), other, 0, [2, 0], atomic=pld.AtomicType.Add)
    tell(signal, 0)
    if me == 0:
        hear(signal, n)
        y[0:ROWS, 0:COLS] = data[0:ROWS, 0:COLS]
        y[0:1, 0:COLS] = other[2:3, 0:COLS]


@pytest.mark.parametrize("dtype", [pl.FP32, pl.INT32, pl.FP16, pl.INT16])
def test_atomic_add(called, dtype):
    x = values(3, dtype.torch)
    expected = torch.zeros_like(x)
    expected[0] = x.sum(0)
    expected[0, 0] = x[:, 1].sum(0)
    call = called(program(sum_at_zero, dtype), x, torch.zeros_like(x), ranks=3, y=expected)
    assert call.names() == []
    assert call.hunted(PLANS) == ""


def own_cell(x, y, data, other, signal, me, n):
    """Own notifies are seen at once."""
    for add, expected in ((2, 2), (-1, 1), (-1, 0)):
        pld.system.notify(signal, me, [1, 0], add, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(signal, [1, 0], expected, cmp=pld.WaitCmp.Eq)
    pld.tensor.put(data, me, x)
    y[0:ROWS, 0:COLS] = data[0:ROWS, 0:COLS]


def test_oneself_as_a_peer(called):
    x = values(2)
    call = called(program(own_cell), x, torch.zeros_like(x), ranks=2, y=x)
    assert call.names() == []
    assert call.hunted(PLANS) == ""


def third_party(x, y, data, other, signal, me, n):
    """Rank 0 puts to rank 1 and tells rank 2, which reads it there."""
    if me == 0:
        pld.tensor.put(data, 1, x)
        tell(signal, 2)
    if me == 2:
        hear(signal)
        pl.store(pld.remote_load(data, 1, [0, 0], [ROWS, COLS]), [0, 0], y)


def test_a_put_is_over_for_everybody(called):
    x = values(3)
    expected = torch.zeros_like(x)
    expected[2] = x[0]
    assert called(program(third_party), x, torch.zeros_like(x), ranks=3, y=expected).hunted(PLANS) == ""


@pytest.mark.parametrize(("shape", "rows", "cols", "found"), [
    ((2, 3), 0, 0, [((0, 0), (2, 3))]),
    ((2, 3), 9, 9, [((0, 0), (2, 3))]),
    ((3, 3), 2, 2, [((0, 0), (2, 2)), ((0, 2), (2, 1)), ((2, 0), (1, 2)), ((2, 2), (1, 1))]),
    ((5,), 1, 3, [((0,), (3,)), ((3,), (2,))]),
    ((2, 2, 2), 1, 0, [((a, b, 0), (1, 1, 2)) for a in (0, 1) for b in (0, 1)]),
    ((0, 3), 1, 1, []),
])
def test_chunks(shape, rows, cols, found):
    assert list(pieces(shape, rows, cols)) == found


# Rules --------------------------------------------------------------------------------------------

REGION = ([0, 0], [0, 0], [1, COLS])
BROKEN = {
    "offset_rank": (
        lambda c: pld.system.notify(c.signal, 0, [0], 1, op=pld.NotifyOp.Set),
        lambda c: pld.system.notify(c.signal, 0, [0, 0], 1, op=pld.NotifyOp.Set),
    ),
    "wrong_mode": (
        lambda c: pld.system.wait(c.signal, [0, 0], 0, cmp=7),
        lambda c: pld.system.wait(c.signal, [0, 0], 0, cmp=1),
    ),
    "wrong_dtype": (
        lambda c: pld.tensor.put(c.signal, 0, c.data),
        lambda c: pld.tensor.put(c.data, c.me, c.other),
    ),
    "not_a_window": (
        lambda c: pld.tensor.put(c.y, 0, c.x), lambda c: pld.tensor.put(c.data, c.me, c.x),
    ),
    "wrong_operand": (
        lambda c: pld.tensor.put(c.data, 0, pl.load(c.x, [0, 0], [1, COLS])),
        lambda c: pld.remote_store(pl.load(c.x, [0, 0], [1, COLS]), c.data, c.me, [0, 0]),
    ),
    "incomplete_region": (
        lambda c: pld.tensor.put(c.data, 0, c.x, [0, 0], [0, 0]),
        lambda c: pld.tensor.put(c.data, c.me, c.x, *REGION),
    ),
    "wrong_shape": (
        lambda c: pld.tensor.get(c.y, 0, c.data[0:2, 0:COLS]),
        lambda c: pld.tensor.get(c.y[0:2, 0:COLS], c.me, c.data[0:2, 0:COLS]),
    ),
    "wrong_chunk": (
        lambda c: pld.tensor.get(c.y, 0, c.data, chunk_rows=-1),
        lambda c: pld.tensor.get(c.y, c.me, c.data, chunk_rows=1),
    ),
    "pipeline_without_chunks": (
        lambda c: pld.tensor.put(c.data, 0, c.x, pipeline=True, chunk_rows=2),
        lambda c: pld.tensor.put(c.data, c.me, c.x, pipeline=True, chunk_rows=2, chunk_cols=2),
    ),
    "peer_outside_domain": (
        lambda c: pld.remote_load(c.data, (c.me - 1 - c.n) % c.n, [0, 0], [1, 1]),
        lambda c: pld.remote_load(c.data, c.me, [0, 0], [1, 1]),
    ),
    "world_size_in_kernel": (
        lambda c: pld.world_size(), lambda c: pld.nranks(pld.get_comm_ctx(c.data)),
    ),
    "alloc_outside_host": (
        lambda c: pld.alloc_window_buffer(64), lambda c: pl.create_tensor([4], pl.FP32)
    ),
    "host_only": (lambda c: called_host(c), lambda c: None),
}


def called_host(c):
    """A kernel that calls a host function."""

    @pl.jit.host
    def inner(x: pl.Tensor[[ROWS, COLS], pl.FP32]):
        """Nothing."""

    inner(c.x)


class Case:
    def __init__(self, *given):
        self.x, self.y, self.data, self.other, self.signal, self.me, self.n = given


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_a_kernel_breaks(called, rule):
    breaks, keeps = BROKEN[rule]
    x = values(2)
    outcome = called(program(lambda *given: breaks(Case(*given))), x, torch.zeros_like(x), ranks=2).run()
    assert outcome.findings[0].name == f"pld/{rule}"
    assert "test_remote.py" in outcome.findings[0].message
    twin = called(program(lambda *given: keeps(Case(*given))), x, torch.zeros_like(x), ranks=2)
    assert [name for name in twin.names() if name.startswith("pld/")] == []


def test_atomic_add_of_what_the_hardware_does_not_add(called):
    x = values(2, torch.uint8)
    assert called(program(sum_at_zero, pl.UINT8), x, torch.zeros_like(x), ranks=2).names() == [
        "pld/atomic_dtype"
    ]


@pl.jit
def nothing(x: pl.Tensor[[1, 8], pl.FP32], w: pld.DistributedTensor[[NR, 8], pl.FP32]):
    """Only names its window."""
    pld.rank(pld.get_comm_ctx(w))


def allocating(make):
    """A host function that makes its window with `make(world size)`."""

    @pl.jit.host
    def host(x: pl.Tensor[[NR, 1, 8], pl.FP32]):
        for r in pl.range(pld.world_size()):
            nothing(x[r], make(pld.world_size()), device=r)

    return host


def view(buf, n):
    return pld.window(buf, [n, 8], dtype=pl.FP32)


@pytest.mark.parametrize(("rule", "make"), [
    ("byte_size", lambda n: view(pld.alloc_window_buffer(n), n)),
    ("byte_size", lambda n: view(pld.alloc_window_buffer(n * 8), n)),
    ("window_larger_than_buffer", lambda n: view(pld.alloc_window_buffer(n * 8 * 4 - 4), n)),
    ("wrong_alloc", lambda n: view(pld.alloc_window_buffer([n, 8]), n)),
    ("wrong_alloc", lambda n: view(pld.alloc_window_buffer(n * 32, dtype=pl.FP32), n)),
    ("wrong_alloc", lambda n: view(pld.alloc_window_buffer(0), n)),
    ("wrong_operand", lambda n: view(64, n)),
    ("", lambda n: view(pld.alloc_window_buffer(n * 8 * pl.FP32.get_byte()), n)),
    ("", lambda n: view(pld.tensor.alloc_window_buffer([n, 8], dtype=pl.FP32), n)),
])
def test_windows_of_host_code(called, rule, make):
    x = torch.zeros(3, 1, 8)
    assert called(allocating(make), x, ranks=3).names() == ([f"pld/{rule}"] if rule else [])


def test_a_buffer_is_called_after_its_variable(called):
    @pl.jit.host
    def host(x: pl.Tensor[[NR, 1, 8], pl.FP32]):
        scratch = pld.alloc_window_buffer([2, 8], dtype=pl.FP32)
        for r in pl.range(pld.world_size()):
            nothing(x[r], view(scratch, 2), device=r)

    run = called(host, torch.zeros(2, 1, 8), ranks=2).run().run
    assert [one.name for one in run.names if one.kind == "window"] == ["scratch"]


def test_kernel_calls_in_host_code(called):
    @pl.jit.host
    def host(x: pl.Tensor[[NR, 1, 8], pl.FP32]):
        buf = pld.alloc_window_buffer([2, 8], dtype=pl.FP32)
        pld.rank(pld.get_comm_ctx(view(buf, 2)))

    assert called(host, torch.zeros(2, 1, 8), ranks=2).names() == ["pld/device_only"]
