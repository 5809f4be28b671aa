"""Collectives in host code: one builtin dispatch a device; and the rules of all collectives.

Annotations of pld functions are evaluated where they stand: no `from __future__ import annotations`.
"""

import pytest
import torch

from harness.frontends.pypto.modules import modules

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
NR, M = pl.dynamic("NR"), pl.dynamic("M")
PLANS = 40
Sum, Max = pld.ReduceOp.Sum, pld.ReduceOp.Max


@pl.jit
def stage(x: pl.Tensor[[M], pl.FP32], data: pl.InOut[pld.DistributedTensor[[M], pl.FP32]]):
    n = pl.tensor.dim(x, 0)
    data[0:n] = x[0:n]


@pl.jit
def unstage(data: pld.DistributedTensor[[M], pl.FP32], y: pl.Out[pl.Tensor[[M], pl.FP32]]):
    n = pl.tensor.dim(y, 0)
    y[0:n] = data[0:n]


def staged(size, collective, calls=1, rest=False):
    """A host function: stage, the collective, read back; `calls` times on the same windows."""

    @pl.jit.host
    def host(x: pl.Tensor[[NR, calls, size], pl.FP32], y: pl.Out[pl.Tensor[[NR, calls, size], pl.FP32]]):
        n = pld.world_size()
        data_buf = pld.alloc_window_buffer([size], dtype=pl.FP32)
        more_buf = pld.alloc_window_buffer([size], dtype=pl.FP32)
        signal_buf = pld.alloc_window_buffer([2 * n, 4 * n], dtype=pl.INT32)
        rest_buf = pld.alloc_window_buffer([n], dtype=pl.INT32)
        data = pld.window(data_buf, [size], dtype=pl.FP32)
        more = pld.window(more_buf, [size], dtype=pl.FP32)
        for k in pl.range(calls):
            for r in pl.range(n):
                stage(x[r, k], data, device=r)
            result = collective(data, more, signal_buf, n)
            for r in pl.range(n):
                unstage(result, y[r, k], device=r)
            if rest:
                pld.tensor.barrier(pld.window(rest_buf, [n], dtype=pl.INT32))

    return host


def signal(buf, *shape):
    return pld.window(buf, list(shape), dtype=pl.INT32)


def mesh(data, more, buf, n):
    return pld.tensor.allreduce(data, signal(buf, n), op=Max)


def synthesized(data, more, buf, n):
    return pld.tensor.allreduce(data)


def four_cores(data, more, buf, n):
    return pld.tensor.allreduce(data, signal(buf, n, 4), core_num=4)


def ring(data, more, buf, n):
    return pld.tensor.allreduce(data, signal(buf, 2 * (n - 1) + 1, n), mode="ring")


def broadcast(data, more, buf, n):
    return pld.tensor.broadcast(data, signal(buf, n), root=1)


def scattered(data, more, buf, n):
    rows = data.reshaped((n, data.numel // n))
    pld.tensor.reduce_scatter(rows, signal(buf, n))
    return data


def all_to_all(data, more, buf, n):
    shape = (n, data.numel // n)
    pld.tensor.all_to_all(data.reshaped(shape), more.reshaped(shape), signal(buf, n, 1))
    return more


REDUCED = {
    "mesh": (mesh, 0), "synthesized": (synthesized, 1), "cores": (four_cores, 1), "ring": (ring, 1),
}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("size", [12, 1200])
@pytest.mark.parametrize("form", REDUCED)
def test_all_reduce_of_host_code(called, ranks, size, form):
    collective, sums = REDUCED[form]
    x = (torch.arange(ranks * size) % 61).reshape(ranks, 1, size).float()
    expected = (x.sum(0) if sums else x.amax(0)).expand_as(x)
    call = called(staged(size, collective), x, torch.zeros_like(x), ranks=ranks, y=expected)
    assert call.names() == []
    assert call.hunted(10) == ""


@pytest.mark.parametrize("form", REDUCED)
def test_all_reduces_in_a_row_are_clean(called, form):
    collective, sums = REDUCED[form]
    x = torch.arange(3 * 3 * 12).reshape(3, 3, 12).float()
    expected = (x.sum(0) if sums else x.amax(0)).expand_as(x)
    call = called(staged(12, collective, calls=3), x, torch.zeros_like(x), ranks=3, y=expected)
    assert call.names() == []
    assert call.hunted(PLANS) == ""


@pytest.mark.parametrize("ranks", [2, 3])
def test_broadcast_does_not_wait_for_its_readers(called, ranks):
    x = torch.arange(ranks * 2 * 600).reshape(ranks, 2, 600).float()
    expected = x[1].expand_as(x)
    once = called(
        staged(600, broadcast), x[:, :1].contiguous(), torch.zeros(ranks, 1, 600), ranks=ranks,
        y=expected[:, :1],
    )
    assert once.hunted(PLANS) == ""
    twice = called(staged(600, broadcast, calls=2), x, torch.zeros_like(x), ranks=ranks, y=expected)
    assert twice.hunted(PLANS).startswith(("races/", "integrity/", "lifetime/"))
    rested = called(
        staged(600, broadcast, calls=2, rest=True), x, torch.zeros_like(x), ranks=ranks, y=expected
    )
    assert rested.hunted(PLANS) == ""


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_of_rows(called, ranks):
    x = torch.arange(ranks * ranks * 4).reshape(ranks, 1, ranks * 4).float()
    rows = x.reshape(ranks, ranks, 4)
    exchanged = rows.transpose(0, 1).reshape(x.shape)
    assert called(staged(ranks * 4, all_to_all), x, x * 0, ranks=ranks, y=exchanged).hunted(PLANS) == ""
    reduced = rows.clone()
    for r in range(ranks):
        reduced[r, r] = rows[:, r].sum(0)
    call = called(staged(ranks * 4, scattered), x, x * 0, ranks=ranks, y=reduced.reshape(x.shape))
    assert call.hunted(PLANS) == ""


# Rules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "collective"), [
    ("shared_buffer", lambda data, more, buf, n: pld.tensor.allreduce(
        data, pld.window(data.buffer, [n], dtype=pl.INT32))),
    ("shared_buffer", lambda data, more, buf, n: pld.tensor.all_to_all(
        data.reshaped((n, 4)), data.reshaped((n, 4)), signal(buf, n))),
    ("missing_signal", lambda data, more, buf, n: pld.tensor.allreduce(data, mode="ring")),
    ("mesh_and_ring_signal", lambda data, more, buf, n: (
        pld.tensor.barrier(signal(buf, n)), ring(data, more, buf, n))[1]),
    ("signal_shape", lambda data, more, buf, n: pld.tensor.allreduce(data, signal(buf, n - 1))),
    ("signal_shape", lambda data, more, buf, n: pld.tensor.allreduce(data, signal(buf, n), core_num=2)),
    ("signal_shape", lambda data, more, buf, n: pld.tensor.allreduce(
        data, signal(buf, 2 * (n - 1), n), mode="ring")),
    ("unsupported_collective", lambda data, more, buf, n: pld.tensor.allreduce(
        data, signal(buf, 2 * n, n), mode="ring", op=Max)),
    ("unsupported_collective", lambda data, more, buf, n: pld.tensor.allreduce(
        data, signal(buf, 2 * n, n), mode="ring", core_num=2)),
    ("unsupported_collective", lambda data, more, buf, n: pld.tensor.reduce_scatter(
        data.reshaped((n, 4)), signal(buf, n), op=Max)),
    ("wrong_mode", lambda data, more, buf, n: pld.tensor.allreduce(data, signal(buf, n), mode="tree")),
    ("wrong_mode", lambda data, more, buf, n: pld.tensor.allreduce(data, signal(buf, n), op=9)),
    ("wrong_dtype", lambda data, more, buf, n: pld.tensor.allreduce(data, more)),
    ("wrong_shape", lambda data, more, buf, n: pld.tensor.reduce_scatter(data, signal(buf, n))),
    ("peer_outside_domain", lambda data, more, buf, n: pld.tensor.broadcast(
        data, signal(buf, n), root=n)),
    ("peer_outside_domain", lambda data, more, buf, n: pld.tensor.broadcast(
        data, signal(buf, n), root=-1)),
    ("not_a_window", lambda data, more, buf, n: pld.tensor.barrier(buf)),
])
def test_a_rule_that_a_call_of_host_code_breaks(called, rule, collective):
    x = torch.zeros(3, 1, 12)
    outcome = called(staged(12, collective), x, torch.zeros_like(x), ranks=3).run()
    assert outcome.findings[0].name == f"pld/{rule}"
    assert "test_pld_collectives.py" in outcome.findings[0].message


def test_silent_returns(called):
    """The ring of 12 elements on 5 ranks, and anything on 17, come back undone on the machine."""
    for ranks, collective, rule in (
        (5, ring, "silent_return"), (17, mesh, "silent_return"), (16, mesh, ""), (4, ring, ""),
    ):
        x = torch.zeros(ranks, 1, 12)
        names = called(staged(12, collective), x, torch.zeros_like(x), ranks=ranks).names()
        assert names == ([f"pld/{rule}"] if rule else [])


def test_windows_of_different_devices(called):
    """The signal is used by all devices, the data by two of three."""

    @pl.jit
    def chip(data: pl.InOut[pld.DistributedTensor[[8], pl.FP32]],
             cells: pl.InOut[pld.DistributedTensor[[NR], pl.INT32]]):
        pld.tensor.broadcast(data, cells, root=0)

    @pl.jit
    def other(cells: pl.InOut[pld.DistributedTensor[[NR], pl.INT32]]):
        """Only names the signal."""
        pld.rank(pld.get_comm_ctx(cells))

    @pl.jit.host
    def host(x: pl.Tensor[[NR, 8], pl.FP32]):
        data_buf = pld.alloc_window_buffer([8], dtype=pl.FP32)
        cells_buf = pld.alloc_window_buffer([4], dtype=pl.INT32)
        for r in pl.range(2):
            chip(pld.window(data_buf, [8], dtype=pl.FP32), pld.window(cells_buf, [4], dtype=pl.INT32),
                 device=r)
        other(pld.window(cells_buf, [4], dtype=pl.INT32), device=2)

    assert called(host, torch.zeros(3, 8), ranks=3).names() == ["pld/different_domains"]


def test_a_ring_in_a_kernel_needs_a_row_a_round(called):
    @pl.jit
    def chip(data: pl.InOut[pld.DistributedTensor[[8], pl.FP32]],
             cells: pl.InOut[pld.DistributedTensor[[3, 3], pl.INT32]]):
        pld.tensor.allreduce(data, cells, mode="ring")

    @pl.jit.host
    def host(x: pl.Tensor[[NR, 8], pl.FP32]):
        data_buf = pld.alloc_window_buffer([8], dtype=pl.FP32)
        cells_buf = pld.alloc_window_buffer([3, 3], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            chip(pld.window(data_buf, [8], dtype=pl.FP32), pld.window(cells_buf, [3, 3], dtype=pl.INT32),
                 device=r)

    assert called(host, torch.zeros(3, 8), ranks=3).names() == ["pld/signal_shape"]
    assert called(host, torch.zeros(2, 8), ranks=2).names() == []
