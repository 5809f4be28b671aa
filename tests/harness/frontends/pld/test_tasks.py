"""Tasks of a device: edges, cores, scopes, deferred waits, and what goes wrong without them.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import pytest
import torch

from harness.frontends.pypto.cores import CORES, LANES
from harness.frontends.pypto.modules import modules

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
W = 4
ROWS = 4
PLANS = 40
CORE = pl.Level.CORE_GROUP


def program(orchestrate, rows=ROWS):
    """A host function each of whose devices runs `orchestrate(x, out, data, signal, peer)`."""

    @pl.jit
    def chip(
        x: pl.Tensor[[1, W], pl.INT32], out: pl.Out[pl.Tensor[[rows, W], pl.INT32]],
        data: pl.InOut[pld.DistributedTensor[[1, W], pl.INT32]],
        signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]], peer: pl.Scalar[pl.INT32],
    ):
        orchestrate(x, out, data, signal, peer)

    @pl.jit.host
    def host(
        x: pl.Tensor[[NR, 1, W], pl.INT32], out: pl.Out[pl.Tensor[[NR, rows, W], pl.INT32]]
    ):
        data_buf = pld.alloc_window_buffer([1, W], dtype=pl.INT32)
        signal_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            data = pld.window(data_buf, [1, W], dtype=pl.INT32)
            signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
            chip(x[r], out[r], data, signal, (r + 1) % pld.world_size(), device=r)

    return host


NR = pl.dynamic("NR")


def values(ranks):
    return (torch.arange(ranks * W, dtype=torch.int32) + 1).reshape(ranks, 1, W)


@pytest.fixture
def tasks(called):
    def make(orchestrate, *, ranks=1, rows=ROWS, expected=None):
        out = torch.full((ranks, rows, W), -1, dtype=torch.int32)
        told = {} if expected is None else {"out": expected}
        return called(program(orchestrate, rows), values(ranks), out, ranks=ranks, **told)

    return make


def swapped(rows):
    """What each of two devices gets of the other, in every row."""
    return values(2).flip(0).expand(2, rows, W).contiguous()


# Deferred waits and cores ---------------------------------------------------------------------------


def exchange(wait, count, *, deps=True):
    @pl.jit.inline
    def orchestrate(x, out, data, signal, peer):
        with pl.manual_scope():
            for slot in pl.range(count):
                with pl.at(level=CORE, name_hint="waiter") as tid:
                    wait(signal)
                with pl.at(level=CORE, name_hint="reader", deps=[tid] if deps else None):
                    out = pl.store(pl.load(data, [0, 0], [1, W]), [slot, 0], out)
            with pl.at(level=CORE, name_hint="publisher"):
                pld.tile.remote_store(pl.load(x, [0, 0], [1, W]), data, peer, [0, 0])
                pld.system.notify(signal, peer, [0, 0], 1, op=pld.NotifyOp.Set)

    return orchestrate


def defers(signal):
    pld.system.defer_wait(signal, [0, 0], 1, cmp=pld.WaitCmp.Ge)


def blocks(signal):
    pld.system.wait(signal, [0, 0], 1, cmp=pld.WaitCmp.Ge)


def test_deferred_waits_give_their_cores_back(tasks):
    run = tasks(exchange(defers, CORES), ranks=2, rows=CORES, expected=swapped(CORES))
    assert run.names() == []
    assert run.hunted(PLANS) == ""


def test_waits_that_hold_every_core_starve_the_publisher(tasks):
    run = tasks(exchange(blocks, CORES), ranks=2, rows=CORES)
    found = run.run().findings
    assert [one.name for one in found] == ["deadlock/core_starvation"]
    assert "its 16 cores are held by tasks that wait ('waiter' 16 times)" in found[0].message
    assert "never given a core: 'publisher' (" in found[0].message


def test_one_core_is_enough_for_the_publisher(tasks):
    rows = CORES - 1
    run = tasks(exchange(blocks, rows), ranks=2, rows=rows, expected=swapped(rows))
    assert run.names() == []
    assert run.hunted(PLANS) == ""


def test_a_reader_without_its_edge_is_found(tasks):
    run = tasks(exchange(defers, 2, deps=False), ranks=2, rows=2)
    assert any(name.startswith("races/") for name in run.names())


def test_more_deferred_waits_than_the_device_has_lanes(tasks):
    names = tasks(exchange(defers, LANES), ranks=2, rows=LANES).names()
    assert names == ["pld/too_many_deferred"]


# Edges ------------------------------------------------------------------------------------------------


@pl.jit.inline
def inferred(x, out, data, signal, peer):
    scratch = pl.create_tensor([1, W], pl.INT32)
    with pl.at(level=CORE):
        scratch[:, :] = pl.add(x, x)
    for row in pl.range(ROWS):
        with pl.at(level=CORE):
            out = pl.store(pl.add(pl.load(scratch, [0, 0], [1, W]), row), [row, 0], out)


def test_a_reader_comes_after_the_writer_without_being_told(tasks):
    doubled = 2 * values(1) + torch.arange(ROWS, dtype=torch.int32).reshape(1, ROWS, 1)
    run = tasks(inferred, expected=doubled)
    assert run.names() == []
    assert run.hunted(PLANS) == ""


@pl.jit.inline
def overwritten(x, out, data, signal, peer):
    scratch = pl.create_tensor([1, W], pl.INT32)
    with pl.at(level=CORE):
        scratch[:, :] = pl.add(x, 1)
    with pl.at(level=CORE):
        out = pl.store(pl.load(scratch, [0, 0], [1, W]), [0, 0], out)
    with pl.at(level=CORE):
        scratch[:, :] = pl.add(x, 2)


def test_a_writer_does_not_wait_for_who_still_reads(tasks):
    found = next(one for one in tasks(overwritten).run().findings if one.checker == "races")
    assert found.cause.startswith("nothing orders two tasks of a device")


@pl.jit.inline
def later_value(x, out, data, signal, peer):
    with pl.at(level=CORE) as first:
        total = pl.add(x, x)
    with pl.at(level=CORE, deps=[first]):
        for row in pl.range(ROWS):
            out = pl.store(total, [row, 0], out)


def test_a_value_that_one_task_binds_and_another_uses(tasks):
    run = tasks(later_value, expected=(2 * values(1)).expand(1, ROWS, W).contiguous())
    assert run.names() == []
    assert run.hunted(PLANS) == ""


@pl.jit.inline
def later_value_without_edge(x, out, data, signal, peer):
    with pl.manual_scope():
        with pl.at(level=CORE):
            total = pl.add(x, x)
        with pl.at(level=CORE):
            out = pl.store(total, [0, 0], out)


def test_such_a_value_needs_an_edge_in_a_manual_scope(tasks):
    assert tasks(later_value_without_edge).names() == ["pld/value_without_edge"]


@pl.jit.incore
def twice(x: pl.Tensor[[1, W], pl.INT32], out: pl.Out[pl.Tensor[[1, W], pl.INT32]]):
    out = pl.store(pl.add(x, x), [0, 0], out)
    return out


@pl.jit.inline
def calls_kernels(x, out, data, signal, peer):
    scratch = pl.create_tensor([1, W], pl.INT32)
    twice(x, scratch)
    with pl.at(level=CORE):
        twice(scratch, out[0:1, :])
    with pl.at(level=CORE):
        pl.store(pl.load(out, [0, 0], [1, W]), [1, 0], out)


def test_kernels_are_tasks_and_their_parameters_make_edges(tasks):
    expected = torch.full((1, ROWS, W), -1, dtype=torch.int32)
    expected[0, :2] = 4 * values(1)[0]
    run = tasks(calls_kernels, expected=expected)
    assert run.names() == []
    assert run.hunted(PLANS) == ""


# Submitted kernels ------------------------------------------------------------------------------------


@pl.program
class Submitted:
    @pl.function(type=pl.FunctionType.InCore)
    def row(
        self, x: pl.Tensor[[1, W], pl.INT32], at: pl.Scalar[pl.INT32],
        out: pl.Out[pl.Tensor[[ROWS, W], pl.INT32]],
    ) -> pl.Tensor[[ROWS, W], pl.INT32]:
        return pl.store(pl.add(x, at), [at, 0], out)

    @pl.function(type=pl.FunctionType.InCore)
    def total(
        self, rows: pl.Tensor[[ROWS, W], pl.INT32], out: pl.Out[pl.Tensor[[1, W], pl.INT32]]
    ) -> pl.Tensor[[1, W], pl.INT32]:
        return pl.store(pl.col_sum(pl.load(rows, [0, 0], [ROWS, W])), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self, x: pl.Tensor[[1, W], pl.INT32], out: pl.Out[pl.Tensor[[1, W], pl.INT32]]
    ) -> pl.Tensor[[1, W], pl.INT32]:
        rows = pl.create_tensor([ROWS, W], pl.INT32)
        tids = pl.array.create(ROWS, pl.TASK_ID)
        with pl.manual_scope():
            for at in pl.parallel(ROWS):
                rows, tid = pl.submit(self.row, x, at, rows)
                tids[at] = tid
            out, _ = pl.submit(self.total, rows, out, deps=[tids] if EDGES[0] else [tid])
        return out

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self, x: pl.Tensor[[1, W], pl.INT32], out: pl.Out[pl.Tensor[[1, W], pl.INT32]]
    ) -> pl.Tensor[[1, W], pl.INT32]:
        return self.chip(x, out, device=0)


EDGES = [True]


@pytest.fixture
def submitted(called):
    x = values(1)[0]
    made = called(
        Submitted.entry(), x, torch.zeros(1, W, dtype=torch.int32), ranks=1,
        out=ROWS * x + sum(range(ROWS)),
    )
    made.owner = Submitted.owner
    yield made
    EDGES[0] = True


def test_a_task_that_waits_for_all_of_an_array(submitted):
    assert submitted.names() == []
    assert submitted.hunted(PLANS) == ""


def test_a_task_that_waits_for_the_last_one_only(submitted):
    EDGES[0] = False
    assert any(name.startswith("races/") for name in submitted.names())


# Blocks and lanes -------------------------------------------------------------------------------------


@pl.jit.inline
def in_blocks(x, out, data, signal, peer):
    with pl.spmd(2, name_hint="first half") as tid:
        block = pl.tile.get_block_idx()
        out = pl.store(pl.add(x, block), [block, 0], out)
    for i in pl.spmd(2):
        out = pl.store(pl.add(x, i + 2 * pl.get_block_num()), [i + 2, 0], out)
    del tid


def test_blocks_of_a_task(tasks):
    shift = torch.tensor([0, 1, 4, 5], dtype=torch.int32).reshape(1, ROWS, 1)
    run = tasks(in_blocks, expected=values(1) + shift)
    assert run.names() == []
    assert run.hunted(PLANS) == ""


def on_both_lanes(*, guarded):
    @pl.jit.inline
    def orchestrate(x, out, data, signal, peer):
        with pl.at(level=CORE):
            for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
                if not guarded or lane == 0:
                    pld.system.notify(signal, peer, [0, 0], 1, op=pld.NotifyOp.AtomicAdd)
        with pl.at(level=CORE):
            pld.system.wait(signal, [0, 0], 1 if guarded else 2, cmp=pld.WaitCmp.Ge)
            pl.write(out, [0, 0], pl.read(signal, [0, 0]))

    return orchestrate


@pytest.mark.parametrize("guarded", [True, False])
def test_a_body_runs_on_both_vector_cores(tasks, guarded):
    expected = torch.full((1, ROWS, W), -1, dtype=torch.int32)
    expected[0, 0, 0] = 1 if guarded else 2
    run = tasks(on_both_lanes(guarded=guarded), expected=expected)
    assert run.names() == []
    assert run.hunted(PLANS) == ""


# Rules --------------------------------------------------------------------------------------------------


@pl.jit.inline
def scopes_nested(x, out, data, signal, peer):
    with pl.at(level=CORE):
        pl.load(x, [0, 0], [1, W])
    with pl.manual_scope(), pl.manual_scope():
        pass


@pl.jit.inline
def defers_an_equality(x, out, data, signal, peer):
    with pl.at(level=CORE):
        pld.system.defer_wait(signal, [0, 0], 1, cmp=pld.WaitCmp.Eq)


@pl.jit.inline
def defers_below_zero(x, out, data, signal, peer):
    with pl.at(level=CORE):
        pld.system.defer_wait(signal, [0, 0], -1, cmp=pld.WaitCmp.Ge)


@pl.jit.inline
def depends_on_a_number(x, out, data, signal, peer):
    with pl.at(level=CORE, deps=[3]):
        pl.load(x, [0, 0], [1, W])


@pytest.mark.parametrize(("orchestrate", "rule"), [
    (scopes_nested, "nested_scope"), (defers_an_equality, "defer_wait"),
    (defers_below_zero, "defer_wait_unsigned"), (depends_on_a_number, "deps"),
])
def test_rules(tasks, orchestrate, rule):
    assert tasks(orchestrate).names() == [f"pld/{rule}"]


def test_lanes_without_work_leave_no_trace(tasks):
    record = tasks(inferred).run().run
    assert {event.owner for event in record.events if event.kind == "task"} == set(range(1, 2 + ROWS))
