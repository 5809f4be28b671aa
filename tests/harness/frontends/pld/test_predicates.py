"""`predicate=`: when it is read, what a task that is skipped leaves, and what is refused.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import pytest
import torch

from harness.frontends.pypto.cores import CORES
from harness.frontends.pypto.modules import modules

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
W = 4
PLANS = 40
CORE = pl.Level.CORE_GROUP
Row = pl.Tensor[[1, W], pl.INT32]


def written(value):
    return torch.full((1, W), value, dtype=torch.int32)


@pl.program
class Gated:
    @pl.function(type=pl.FunctionType.InCore)
    def fill(self, out: pl.Out[Row], value: pl.Scalar[pl.INT32]) -> Row:
        return pl.store(pl.tile.full([1, W], dtype=pl.INT32, value=value), [0, 0], out)

    @pl.function(type=pl.FunctionType.InCore)
    def copy(self, x: Row, out: pl.Out[Row]) -> Row:
        return pl.store(pl.load(x, [0, 0], [1, W]), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, x: Row, gate: Row, out: pl.Out[Row]) -> Row:
        held = pl.create_tensor([1, W], pl.INT32)
        counted = pl.create_tensor([1, W], pl.INT32)
        with pl.manual_scope():
            counted, first = pl.submit(self.copy, gate, counted)
            held, filled = pl.submit(self.fill, held, 42)
            held, over = pl.spmd_submit(
                self.copy, x, held, core_num=1, predicate=(counted[0, 1] > 0),
                deps=[first, filled] if TOLD[0] else [filled],
            )
            out, _ = pl.submit(self.copy, held, out, deps=[over])
        return out

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, x: Row, gate: Row, out: pl.Out[Row]) -> Row:
        return self.chip(x, gate, out, device=0)


TOLD = [True]


@pytest.fixture
def gated(called):
    def make(gate):
        x = torch.arange(W, dtype=torch.int32).reshape(1, W)
        made = called(
            Gated.entry(), x, torch.tensor([[0, gate, 0, 0]], dtype=torch.int32), written(-1), ranks=1,
            out=x if gate > 0 else written(42),
        )
        made.owner = Gated.owner
        return made

    yield make
    TOLD[0] = True


@pytest.mark.parametrize("gate", [0, 1])
def test_a_task_runs_or_is_skipped_and_its_dependents_go_on(gated, gate):
    run = gated(gate)
    assert run.names() == []
    assert run.hunted(PLANS) == ""


def test_it_is_no_edge_to_who_writes_the_value(gated):
    TOLD[0] = False
    assert any(name.startswith("races/") for name in gated(1).names())


def chip_of(orchestrate):
    @pl.jit
    def chip(x: Row, out: pl.Out[Row]):
        orchestrate(x, out)

    @pl.jit.host
    def host(x: Row, out: pl.Out[Row]):
        chip(x, out, device=0)

    return host


@pl.jit.inline
def region(x, out):
    with pl.spmd(1) as first:
        pl.store(pl.add(pl.load(x, [0, 0], [1, W]), 1), [0, 0], out)
    with pl.spmd(1, deps=[first], predicate=(x[0, 0] != -7)) as second:
        pl.store(pl.add(pl.load(out, [0, 0], [1, W]), 1), [0, 0], out)
    with pl.spmd(1, deps=[second], predicate=(x[0, 0] == -7)) as third:
        pl.store(pl.add(pl.load(out, [0, 0], [1, W]), 5), [0, 0], out)
    del third


@pl.jit.inline
def no_core_for_it(x, out):
    cells = pl.create_tensor([1, W], pl.INT32)
    with pl.manual_scope():
        with pl.spmd(1, predicate=(x[0, 0] > 99)) as skipped:
            pl.store(pl.load(x, [0, 0], [1, W]), [0, 0], cells)
        for _ in pl.range(CORES):
            with pl.spmd(1, deps=[skipped]) as tid:
                pl.load(x, [0, 0], [1, W])
        with pl.spmd(1, deps=[skipped]) as tid:
            pl.store(pl.add(pl.load(x, [0, 0], [1, W]), 2), [0, 0], out)
    del tid


@pytest.mark.parametrize("orchestrate", [region, no_core_for_it])
def test_regions(called, orchestrate):
    x = torch.arange(W, dtype=torch.int32).reshape(1, W)
    run = called(chip_of(orchestrate), x, written(-1), ranks=1, out=x + 2)
    assert run.names() == []
    assert run.hunted(PLANS) == ""


@pl.jit.inline
def two_comparisons(x, out):
    with pl.spmd(1, predicate=(0 < x[0, 0] < 3)):
        pl.store(pl.load(x, [0, 0], [1, W]), [0, 0], out)


@pl.jit.inline
def a_product(x, out):
    with pl.spmd(1, predicate=(x[0, 0] * 2 > 1)):
        pl.store(pl.load(x, [0, 0], [1, W]), [0, 0], out)


@pytest.mark.parametrize("orchestrate", [two_comparisons, a_product])
def test_anything_richer_is_refused(called, orchestrate):
    run = called(chip_of(orchestrate), written(1), written(-1), ranks=1)
    assert run.names() == ["pld/predicate"]
