"""What the operations do, apart from when: values, dtypes, shapes, views, guards, grad mode."""

from __future__ import annotations

import numpy
import pytest
import torch

from harness.fabric.memory import ITEMSIZE
from harness.fabric.one_sided import ATOMIC_ADD_DTYPES
from harness.plan import Hold
from harness.rank import AtomicType, NotifyOp, WaitCmp


def name(dtype):
    return str(dtype)[6:]


@pytest.mark.parametrize("dtype", ITEMSIZE, ids=name)
def test_every_dtype_makes_the_round_trip(go, dtype):
    value = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)

    def program(rank):
        window = rank.window("w", (3, 4), dtype)
        copy = rank.buffer((2, 3), dtype)
        peer = 1 - rank.index
        rank.put(window, peer, value, 1)
        rank.barrier()
        rank.get(copy, peer, window, 1)
        return (
            rank.load(window, 1, (2, 3)),
            rank.load(copy, 0, (2, 3)),
            rank.remote_load(window, peer, 1, (2, 3)),
        )

    for loaded in go(program).results[0][0]:
        assert loaded.dtype is dtype
        assert torch.equal(loaded, value)


@pytest.mark.parametrize("dtype", sorted(ATOMIC_ADD_DTYPES, key=name), ids=name)
def test_atomic_puts_add_up(go, dtype):
    def program(rank):
        window = rank.window("w", 2, dtype, init="zero")
        mine = torch.tensor([rank.index + 1, 2]).to(dtype)
        rank.put(window, 0, mine, atomic=AtomicType.Add)
        rank.remote_store(window, 0, mine, atomic=AtomicType.Add)
        if rank.index == 2:
            rank.put(window, 1, mine, atomic=AtomicType.NoAtomic)
        rank.barrier()
        return rank.load(window, 0, 2).tolist()

    run = go(program, 3, Hold(0), Hold(3, 4))
    assert run.results[0] == [[12, 12]]
    assert run.results[1] == [[3, 2]]


def test_int32_adds_wrap_as_a_cell_does(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        rank.notify(cells, rank.index, 0, 2**31 - 1)
        rank.notify(cells, rank.index, 0, 1)
        rank.quiet()
        return rank.load(cells, 0, 1).item()

    assert go(program).results[0] == [-(2**31)]


def test_set_and_add_eq_and_ge(go):
    def program(rank):
        cells = rank.window("c", 2, torch.int32)
        rank.notify(cells, rank.index, 0, 5, op=NotifyOp.Set)
        rank.wait(cells, 0, 5, cmp=WaitCmp.Eq)
        rank.notify(cells, rank.index, 0, -2)
        rank.wait(cells, 0, 3, cmp=WaitCmp.Eq)
        rank.wait(cells, 0, 2)
        rank.notify(cells, rank.index, 0, 1, op=NotifyOp.Set)
        rank.wait(cells, 0, 1, cmp=WaitCmp.Eq)
        return rank.load(cells, 0, 2).tolist()

    assert go(program).results == [[[1, 0]], [[1, 0]]]


def test_an_eq_wait_may_be_overshot_before_it_looks(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.notify(cells, 1, 0, 1)
            rank.notify(cells, 1, 0, 1)
        else:
            rank.wait(cells, 0, 1, cmp=WaitCmp.Eq)

    endings = {go(program, 2, Hold(0, a), Hold(1, b)).ended for a in range(4) for b in range(4)}
    assert endings == {"returned", "blocked"}


def test_a_local_store_wakes_a_wait(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        rank.store(cells, 4)
        rank.wait(cells, 0, 4)

    assert go(program).ended == "returned"


@pytest.mark.parametrize("op", NotifyOp)
def test_put_signal_brings_data_and_signal(go, op):
    def program(rank):
        window = rank.window("w", 3, torch.float32)
        cells = rank.window("c", 2, torch.int32)
        data = torch.tensor([1.0, 2.0]) + rank.index
        rank.put_signal(window, 1 - rank.index, data, 1, cells, 1, 6, op=op)
        rank.wait(cells, 1, 6, cmp=WaitCmp.Eq)
        return rank.load(window, 1, 2).tolist()

    assert go(program).results == [[[2.0, 3.0]], [[1.0, 2.0]]]


def test_get_returns_when_landed_and_get_nbi_before(go):
    def program(rank):
        window = rank.window("w", 1, torch.int32)
        rank.store(window, 10 + rank.index)
        rank.sync()
        blocking = rank.buffer(1, torch.int32)
        other = rank.buffer(1, torch.int32)
        rank.store(other, 0)
        rank.get(blocking, 1 - rank.index, window)
        first = rank.load(blocking, 0, 1).item()
        rank.get_nbi(other, 1 - rank.index, window)
        early = rank.load(other, 0, 1).item()
        rank.quiet()
        return first, early, rank.load(other, 0, 1).item()

    assert go(program, 2, Hold(0), Hold(1)).results[0][0][0] == 11, "a held get still completes"
    late = go(program, 2, Hold(1), Hold(2), Hold(3)).results
    assert [result[0][2] for result in late] == [11, 10]
    assert 0 in [result[0][1] for result in late]


def test_zero_size_everywhere(go):
    def program(rank):
        window = rank.window("w", (0, 3), torch.float32)
        full = rank.window("f", 2, torch.float32)
        empty = rank.buffer(0, torch.float32)
        rank.put(window, 0, torch.empty(0))
        rank.put(full, 0, torch.empty(0, 5), 2)
        rank.put_nbi(full, 0, empty, 1)
        rank.get(empty, 0, full, 2)
        rank.get_nbi(empty, 0, window)
        rank.store(full, torch.empty(0), 2)
        rank.remote_store(full, 0, torch.empty(0), 0, atomic=AtomicType.Add)
        rank.barrier()
        return (
            rank.load(window, 0, (0, 3)).shape,
            rank.load(full, 2, 0).shape,
            rank.remote_load(full, 0, 2, (4, 0)).shape,
            rank.load(full, 0, ()).shape,
        )

    run = go(program)
    assert (run.ended, run.failures) == ("returned", [])
    assert run.results[0] == [((0, 3), (0,), (4, 0), ())]


def test_shapes_may_be_numpy_or_torch_sizes(go):
    def program(rank):
        window = rank.window("w", torch.Size((2, 3)), torch.int32)
        rank.buffer(numpy.int64(4), torch.int32)
        return rank.load(window, numpy.int64(1), [numpy.int32(2), 2]).tolist()

    assert go(program).results[0] == [[[0, 0], [0, 0]]]


def test_windows_begin_as_poison_and_cells_as_zero(go):
    def program(rank):
        cells = rank.window("c", 2, torch.int32)
        data = rank.window("d", 2, torch.float32)
        zero = rank.window("z", 2, torch.bfloat16, init="zero")
        dirty = rank.window("p", 2, torch.int32, init="poison")
        return (
            rank.load(cells, 0, 2).tolist(),
            rank.load(data, 0, 2).isnan().all().item(),
            rank.load(zero, 0, 2).tolist(),
            rank.load(dirty, 0, 2).tolist(),
        )

    assert go(program).results[0] == [([0, 0], True, [0.0, 0.0], [2146754221] * 2)]


def test_views_share_memory_and_cells_of_views_are_cells(go):
    def program(rank):
        raw = rank.window("raw", 64, torch.uint8, init="zero")
        data = raw.view((2, 2), torch.float32, 16)
        cells = raw.view(4, torch.int32, 32)
        peer = 1 - rank.index
        rank.put(data, peer, torch.tensor([5.0]), 3)
        rank.fence()
        rank.notify(cells, peer, 2, 9)
        rank.wait(cells, 2, 9)
        whole = rank.load(raw.view(16, torch.float32), 7, 1).item()
        return whole, rank.load(cells.view(1, torch.int32, 8), 0, 1).item()

    run = go(program)
    assert run.results == [[(5.0, 9)], [(5.0, 9)]]
    assert [(e.lo, e.hi) for e in run.events if e.kind == "deliver"][:2] == [(28, 32), (40, 44)]


def test_a_view_frees_its_window_and_the_event_has_the_callers_line(go):
    def program(rank):
        window = rank.window("w", 4, torch.float32)
        window.view(1, torch.float32).free()

    run = go(program)
    freed = [event for event in run.events if event.kind == "free"]
    assert len(freed) == 2
    assert run.site(freed[0]).operation == "free"
    code, lasti = freed[0].code, freed[0].lasti
    line = next(number for start, stop, number in code.co_lines() if start <= lasti < stop)
    assert line == program.__code__.co_firstlineno + 2


def test_a_numbered_window_meets_the_same_call_on_the_other_ranks(go):
    def program(rank):
        first = rank.window("w", 1, torch.int32)
        second = rank.window("w", 1, torch.int32)
        rank.notify(second, 1 - rank.index, 0, 3)
        rank.wait(second, 0, 3)
        return rank.load(first, 0, 1).item()

    run = go(program)
    assert run.results == [[0], [0]]
    assert [record.name for record in run.names] == ["w", "w"]


def test_guards_are_watched(go):
    def program(rank):
        window = rank.window("w", 2, torch.float32)
        rank.put(window.shifted(4), 1 - rank.index, torch.ones(2))
        low = rank.buffer(2, torch.float32).shifted(-4)
        rank.store(low, 1.0)

    run = go(program)
    window, *buffers = run.names
    assert window.guards_broken == [(0, 8), (1, 8)]
    assert [(buffer.kind, buffer.guards_broken) for buffer in buffers] == [
        ("buffer", [(0, -4)]),
        ("buffer", [(1, -4)]),
    ] or [buffer.guards_broken for buffer in buffers] == [[(1, -4)], [(0, -4)]]


def test_clean_runs_break_no_guard(go):
    def program(rank):
        window = rank.window("w", 3, torch.int8)
        rank.put(window, 1 - rank.index, torch.ones(3, dtype=torch.int8))
        rank.barrier()

    assert all(not record.guards_broken for record in go(program).names)


def test_scalars_are_stored_as_the_destinations_dtype(go):
    def program(rank):
        window = rank.window("w", 2, torch.float16)
        rank.store(window, 3, 0)
        rank.store(window, 0.5, 1)
        rank.remote_store(window, rank.index, 2, 0)
        rank.quiet()
        return rank.load(window, 0, 2).tolist()

    assert go(program).results[0] == [[2.0, 0.5]]


def test_loads_are_copies(go):
    def program(rank):
        window = rank.window("w", 2, torch.float32, init="zero")
        rank.load(window, 0, 2).fill_(9.0)
        rank.remote_load(window, rank.index, 0, 2).fill_(9.0)
        return rank.load(window, 0, 2).tolist()

    assert go(program).results[0] == [[0.0, 0.0]]


def test_tensors_that_require_grad_are_sources(go):
    def program(rank):
        window = rank.window("w", 1, torch.float32)
        rank.put(window, rank.index, torch.ones(1, requires_grad=True))
        rank.quiet()
        return rank.load(window, 0, 1).item()

    assert go(program).results[0] == [1.0]


def test_grad_mode_belongs_to_a_rank(go):
    def program(rank):
        seen = [torch.is_grad_enabled()]
        with torch.set_grad_enabled(rank.index != 1):
            rank.sync()
            seen.append(torch.is_grad_enabled())
            rank.sync()
            seen.append(torch.is_grad_enabled())
        rank.sync()
        seen.append(torch.is_grad_enabled())
        if rank.index == 1:
            torch.set_grad_enabled(False)
        return seen

    run = go(program, 3)
    assert [result[0] for result in run.results] == [
        [True, True, True, True],
        [True, False, False, True],
        [True, True, True, True],
    ]
    assert torch.is_grad_enabled(), "nor does it leave the run"


def test_context_variables_belong_to_a_rank_and_do_not_outlive_it(go):
    def program(rank):
        before = numpy.geterr()["over"]
        numpy.seterr(over="raise" if rank.index else "ignore")
        rank.sync()
        return before, numpy.geterr()["over"]

    mine = numpy.geterr()["over"]
    for _ in range(3):
        assert go(program).results == [[(mine, "ignore")], [(mine, "raise")]]
    assert numpy.geterr()["over"] == mine
