"""A device's cores: who is given one, and when.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import pytest
import torch

from harness.frontends.pypto.cores import CORES, Cores, Job, span
from harness.frontends.pypto.dtypes import INT32
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.values import View, row_major

pl = modules()["pypto.language"]
COUNT = 3 * CORES
W = 4


def program(orchestrate):
    @pl.jit
    def chip(x: pl.Tensor[[1, W], pl.INT32], out: pl.Out[pl.Tensor[[COUNT, W], pl.INT32]]):
        orchestrate(x, out)

    @pl.jit.host
    def host(x: pl.Tensor[[1, W], pl.INT32], out: pl.Out[pl.Tensor[[COUNT, W], pl.INT32]]):
        chip(x, out, device=0)

    return host


@pytest.fixture
def tasks(called):
    def make(orchestrate, expected):
        x = torch.arange(W, dtype=torch.int32)[None]
        return called(program(orchestrate), x, torch.zeros(COUNT, W, dtype=torch.int32), ranks=1, **(
            {"out": [expected]} if expected is not None else {}
        ))

    return make


@pl.jit.inline
def many(x, out):
    with pl.manual_scope():
        for row in pl.range(COUNT):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="row"):
                pl.store(pl.add(x, row), [row, 0], out)


@pl.jit.inline
def together(x, out):
    with pl.spmd(CORES, sync_start=True) as tid:
        pl.store(x, [pl.get_block_idx(), 0], out)
    del tid
    with pl.spmd(CORES, sync_start=True) as tid:
        pl.store(x, [CORES + pl.get_block_idx(), 0], out)
    del tid


def rows():
    return torch.arange(W, dtype=torch.int32) + torch.arange(COUNT, dtype=torch.int32).reshape(COUNT, 1)


def test_more_tasks_than_cores(tasks):
    run = tasks(many, rows())
    assert run.names() == []
    assert run.hunted(20) == ""


def test_blocks_that_begin_together(tasks):
    expected = torch.arange(W, dtype=torch.int32).expand(COUNT, W).clone()
    expected[2 * CORES :] = 0
    run = tasks(together, expected)
    assert run.names() == []
    assert run.hunted(20) == ""


class Memory:
    """Stands for a window of one rank."""

    number, start, name = 3, 64, "memory"


def view(shape, offset=0, strides=None):
    return View(Memory(), shape, INT32, offset=offset, strides=strides or row_major(shape))


def test_the_span_of_a_view():
    assert span(view((2, 4))) == (3, 64, 64 + 32)
    assert span(view((2, 2), offset=1, strides=(4, 1))) == (3, 68, 64 + 4 * 7)
    assert span(view((0, 4))) == (3, 64, 64)


def made(cores, *uses):
    job = Job("task", lambda block: None, cores.edges(uses), (None, -1))
    cores.wrote(job, uses)
    return job


def test_edges_of_uses():
    cores = Cores()
    whole, left, right = view((8,)), view((4,)), view((4,), offset=4)
    writer = made(cores, (whole, False, True))
    reader = made(cores, (left, True, False))
    assert reader.after == [writer]
    overwriter = made(cores, (left, False, True))
    assert overwriter.after == [writer]  # not behind the reader
    assert made(cores, (left, True, False)).after == [writer, overwriter]
    covering = made(cores, (whole, True, True))
    assert covering.after == [writer, overwriter]
    assert made(cores, (right, True, False)).after == [covering]
    assert covering.follows(writer)
    assert not writer.follows(covering)
