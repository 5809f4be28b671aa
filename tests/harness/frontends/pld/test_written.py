"""Which tasks a task comes after, by what they wrote; and what memory without edges leaves unordered.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.frontends.pypto.dtypes import INT32
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.values import View, row_major
from harness.frontends.pypto.written import Written, covers, overlap, span

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
NR = pl.dynamic("NR")
Row = pl.Tensor[[1, 4], pl.INT32]
Half = pl.Tensor[[2, 2], pl.INT32]
Square = pl.Tensor[[2, 4], pl.INT32]
Cell = pld.DistributedTensor[[1, 1], pl.INT32]


class Memory:
    """Stands for a window of one rank."""

    number, start, name = 3, 64, "memory"


MEMORY = Memory()


def view(shape, offset=0, strides=None):
    return View(MEMORY, shape, INT32, offset=offset, strides=strides or row_major(shape))


def test_the_span_of_a_view():
    assert span(view((2, 4))) == (3, 64, 64 + 32)
    assert span(view((2, 2), offset=1, strides=(4, 1))) == (3, 68, 64 + 4 * 7)
    assert span(view((0, 4))) == (3, 64, 64)


def test_who_comes_after_whom():
    written = Written()

    def submitted(name, *uses):
        before = written.before(uses)
        written.add(name, uses)
        return before

    whole, left, right = view((8,)), view((4,)), view((4,), offset=4)
    assert submitted("writer", (whole, False, True)) == []
    assert submitted("reader", (left, True, False)) == ["writer"]
    assert submitted("overwriter", (left, False, True)) == ["writer"]  # not behind the reader
    assert submitted("again", (left, True, False)) == ["writer", "overwriter"]
    assert submitted("covering", (whole, True, True)) == ["writer", "overwriter"]
    assert submitted("last", (right, True, False)) == ["covering"]
    written.clear()
    assert submitted("next", (whole, True, True)) == []
    written.leave_out(whole)
    assert submitted("more", (whole, True, True)) == ["next"]
    assert submitted("most", (right, True, False)) == ["next"]


def cells(one):
    return {at for start, count in one.runs() for at in range(start, start + count)}


@st.composite
def parts(draw):
    whole = view((3, 4, 2)) if draw(st.booleans()) else view((4, 6))
    if draw(st.booleans()):
        whole = whole.reshaped((6, 4))
    starts = [draw(st.integers(0, n - 1)) for n in whole.shape]
    shape = [draw(st.integers(1, n - s)) for s, n in zip(starts, whole.shape, strict=True)]
    return whole.region(starts, shape)


@given(parts(), parts())
def test_no_overlap_is_missed_and_parts_of_one_tensor_are_told_exactly(one, other):
    meet = bool(cells(one) & cells(other))
    assert overlap(one, other) >= meet
    assert covers(one, other) <= (cells(other) <= cells(one))
    if one.strides == other.strides:
        assert overlap(one, other) == meet
        assert covers(one, other) == (cells(other) <= cells(one))


def called_with(called, orchestrate, *, ranks=1):
    @pl.jit
    def chip(
        x: Row, out: pl.Out[Square], signal: pl.InOut[Cell], peer: pl.Scalar[pl.INT32],
    ):
        orchestrate(x, out, signal, peer)

    @pl.jit.host
    def host(x: Row, out: pl.Out[pl.Tensor[[NR, 2, 4], pl.INT32]]):
        signal_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            signal = pld.window(signal_buf, [1, 1], dtype=pl.INT32)
            chip(x, out[r], signal, (r + 1) % pld.world_size(), device=r)

    x, out = torch.arange(4, dtype=torch.int32)[None], torch.zeros(ranks, 2, 4, dtype=torch.int32)
    return called(host, x, out, ranks=ranks)


@pl.jit.incore
def copy(x: Row, y: pl.Out[Row]):
    return pl.store(pl.load(x, [0, 0], [1, 4]), [0, 0], y)


@pl.jit.inline
def tracked(x, out, signal, peer):
    scratch = pl.create_tensor([1, 4], pl.INT32)
    scratch = copy(x, scratch)
    copy(scratch, out[0:1, :])


@pl.jit.inline
def untracked(x, out, signal, peer):
    scratch = pl.create_tensor([1, 4], pl.INT32, manual_dep=True)
    scratch = copy(x, scratch)
    copy(scratch, out[0:1, :])


@pl.jit.inline
def untracked_with_its_edge(x, out, signal, peer):
    scratch = pl.create_tensor([1, 4], pl.INT32, manual_dep=True)
    with pl.at(level=pl.Level.CORE_GROUP) as filled:
        scratch = pl.store(pl.load(x, [0, 0], [1, 4]), [0, 0], scratch)
    with pl.at(level=pl.Level.CORE_GROUP, deps=[filled]):
        out = pl.store(pl.load(scratch, [0, 0], [1, 4]), [0, 0], out)


def test_memory_with_manual_dep_makes_no_edges(called):
    assert called_with(called, tracked).names() == []
    assert any(name.startswith("races/") for name in called_with(called, untracked).names())
    assert called_with(called, untracked_with_its_edge).names() == []


@pl.jit.incore
def awaits(half: pl.Out[Half], signal: Cell):
    pld.system.wait(signal, [0, 0], 1, cmp=pld.WaitCmp.Ge)
    pl.write(half, [0, 0], 1)


@pl.jit.incore
def tells(half: pl.Out[Half], signal: Cell, peer: pl.Scalar[pl.INT32]):
    pl.write(half, [0, 0], 2)
    pld.system.notify(signal, peer, [0, 0], 1, op=pld.NotifyOp.Set)


@pl.jit.inline
def halves(x, out, signal, peer):
    awaits(out[:, 0:2], signal)
    tells(out[:, 2:4], signal, peer)


def test_blocks_of_columns_are_not_ordered(called):
    run = called_with(called, halves, ranks=2)
    assert run.names() == []
    assert run.hunted(20) == ""
