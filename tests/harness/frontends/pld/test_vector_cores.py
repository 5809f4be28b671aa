"""Tiles that cross between the cube and the vector cores: halves, joins, and what is refused.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import pytest
import torch

from harness.errors import NotSimulated
from harness.frontends.pypto.modules import modules

pl = modules()["pypto.language"]
S = 4
PLANS = 20
CORE = pl.Level.CORE_GROUP
Square = pl.Tensor[[S, S], pl.FP32]


@pytest.fixture
def square(called):
    def make(orchestrate, expected=None):
        @pl.jit
        def chip(x: Square, out: pl.Out[Square]):
            orchestrate(x, out)

        @pl.jit.host
        def host(x: Square, out: pl.Out[Square]):
            chip(x, out, device=0)

        x = torch.arange(S * S, dtype=torch.float32).reshape(S, S)
        told = {} if expected is None else {"out": expected(x)[None]}
        return called(host, x, torch.full((S, S), -1.0), ranks=1, **told)

    return make


@pl.jit.inline
def rows(x, out):
    with pl.at(level=CORE):
        product = pl.matmul(pl.load(x, [0, 0], [S, S]), pl.load(x, [0, 0], [S, S]))
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            half = pl.mul(pl.aiv_shard(product), 2.0)
            out = pl.store(half, [lane * (S // 2), 0], out)


@pl.jit.inline
def columns(x, out):
    with pl.at(level=CORE):
        product = pl.matmul(pl.load(x, [0, 0], [S, S]), pl.load(x, [0, 0], [S, S]))
        for lane in pl.split_aiv(2, mode=pl.SplitMode.LEFT_RIGHT):
            half = pl.mul(pl.aiv_shard(product), 2.0)
            out = pl.store(half, [0, lane * (S // 2)], out)


@pl.jit.inline
def joined(x, out):
    with pl.at(level=CORE):
        whole = pl.load(x, [0, 0], [S, S])
        product = pl.matmul(whole, whole)
        for _ in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            doubled = pl.aic_gather(pl.mul(pl.aiv_shard(product), 2.0))
        out = pl.store(doubled, [0, 0], out)


@pl.jit.inline
def full_width(x, out):
    with pl.at(level=CORE):
        whole = pl.load(x, [0, 0], [S, S])
        product = pl.matmul(whole, whole)
        for _ in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            doubled = pl.aic_gather(pl.mul(pl.aiv_shard(product), 2.0))
        out = pl.store(doubled, [0, 0], out)


@pytest.mark.parametrize("orchestrate", [rows, columns, joined, full_width])
def test_both_cores_make_the_whole(square, orchestrate):
    run = square(orchestrate, lambda x: x @ x * 2)
    assert run.names() == []
    assert run.hunted(PLANS) == ""


@pl.jit.inline
def ragged(x, out):
    with pl.at(level=CORE):
        whole = pl.load(x, [0, 0], [S, S], valid_shape=[S - 1, S])
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            out = pl.store(pl.aiv_shard(whole), [lane * (S // 2), 0], out)


def test_of_a_ragged_tile_the_second_half_has_less(square):
    run = square(ragged, lambda x: torch.cat([x[:-1], torch.full((1, S), -1.0)]))
    assert run.names() == []


@pl.jit.inline
def own_half_of_none(x, out):
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            row = pl.aic_gather(pl.load(x, [lane, 0], [1, S]))
        out = pl.store(row, [0, 0], out)


@pl.jit.inline
def on_one_core(x, out):
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            if lane == 0:
                half = pl.aic_gather(pl.load(x, [0, 0], [2, S]))
        out = pl.store(half, [0, 0], out)


@pl.jit.inline
def outside(x, out):
    with pl.at(level=CORE):
        out = pl.store(pl.aiv_shard(pl.load(x, [0, 0], [S, S])), [0, 0], out)


@pl.jit.inline
def odd(x, out):
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            out = pl.store(pl.aiv_shard(pl.load(x, [0, 0], [S - 1, S])), [lane, 0], out)


@pl.jit.inline
def same_place(x, out):
    with pl.at(level=CORE):
        for _ in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            out = pl.store(pl.aiv_shard(pl.load(x, [0, 0], [S, S])), [0, 0], out)


@pytest.mark.parametrize(("orchestrate", "name"), [
    (own_half_of_none, "pld/lanes_differ"), (on_one_core, "pld/lanes_differ"),
    (outside, "pld/split_aiv"), (odd, "pld/split_aiv"), (same_place, "races/unordered_write"),
])
def test_what_is_wrong(square, orchestrate, name):
    assert name in square(orchestrate).names()


@pl.jit.inline
def halved_by_the_compiler(x, out):
    with pl.at(level=CORE):
        for _ in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            out = pl.store(pl.mul(pl.load(x, [0, 0], [S, S]), 2.0), [0, 0], out)


def test_a_body_that_names_no_crossing_is_refused(square):
    failure, = square(halved_by_the_compiler).run().run.failures
    assert isinstance(failure.error, NotSimulated)
    assert "names no crossing" in str(failure.error)


@pl.jit.inline
def joined_tasks(x, out):
    with pl.manual_scope():
        with pl.at(level=CORE) as first:
            pl.store(pl.load(x, [0, 0], [2, S]), [0, 0], out)
        with pl.at(level=CORE) as second:
            pl.store(pl.load(x, [2, 0], [2, S]), [2, 0], out)
        both = pl.system.task_dummy(deps=[first, second])
        with pl.at(level=CORE, deps=[both]):
            pl.store(pl.mul(pl.load(out, [0, 0], [S, S]), 2.0), [0, 0], out)


def test_a_task_without_work_joins_others(square):
    run = square(joined_tasks, lambda x: 2 * x)
    assert run.names() == []
    assert run.hunted(PLANS) == ""
