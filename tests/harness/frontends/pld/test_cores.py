"""A device's cores: who is given one, and when.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import pytest
import torch

from harness.frontends.pypto.cores import CORES
from harness.frontends.pypto.modules import modules

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
