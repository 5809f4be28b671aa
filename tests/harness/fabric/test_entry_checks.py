"""Every impossible operation raises its typed error at its entry, in the rank that asked for it,
with rank, operation, what was given and what is allowed in the text; nothing of it happens."""

from __future__ import annotations

import numpy
import pytest
import torch

from harness.errors import (
    Misaligned,
    NonContiguous,
    OutOfBounds,
    UseAfterFree,
    WrongArgument,
    WrongDtype,
    WrongHandle,
    WrongPeer,
    WrongShape,
)
from harness.rank import AtomicType, NotifyOp


class World:
    """What the cases below use on rank 1."""

    def __init__(self, rank):
        self.rank = rank
        self.data = rank.window("data", 4, torch.float32)
        self.cells = rank.window("cells", 4, torch.int32)
        self.flags = rank.window("flags", 4, torch.bool)
        self.buffer = rank.buffer(2, torch.float32)
        self.gone = rank.window("gone", 4, torch.float32)
        self.gone.free()
        self.tensor = torch.ones(2)


ADD = {"op": NotifyOp.AtomicAdd}
OPERATIONS = {
    "load": lambda w, data, at=0: w.rank.load(data, at, 1),
    "store": lambda w, data, at=0: w.rank.store(data, torch.ones(1), at),
    "put": lambda w, data, at=0, peer=0: w.rank.put(data, peer, torch.ones(1), at),
    "put_nbi": lambda w, data, at=0, peer=0: w.rank.put_nbi(data, peer, w.buffer, at),
    "get": lambda w, data, at=0, peer=0: w.rank.get(w.buffer, peer, data, at),
    "get_nbi": lambda w, data, at=0, peer=0: w.rank.get_nbi(w.buffer, peer, data, at),
    "remote_load": lambda w, data, at=0, peer=0: w.rank.remote_load(data, peer, at, 1),
    "remote_store": lambda w, data, at=0, peer=0: w.rank.remote_store(
        data, peer, torch.ones(1), at
    ),
    "put_signal": lambda w, data, at=0, peer=0: w.rank.put_signal(
        data, peer, torch.ones(1), at, w.cells, 0, 1, **ADD
    ),
}
CELL_OPERATIONS = {
    "notify": lambda w, cells, at=0, peer=0: w.rank.notify(cells, peer, at, 1),
    "wait": lambda w, cells, at=0, peer=0: w.rank.wait(cells, at, 0),
    "put_signal": lambda w, cells, at=0, peer=0: w.rank.put_signal(
        w.data, peer, torch.ones(1), 0, cells, at, 1, **ADD
    ),
}
FAR = [name for name in OPERATIONS if name not in ("load", "store")]


def refused(go, case, error, *words):
    """Run `case` on rank 1 of 2; its text must hold all `words`."""

    def program(rank):
        world = World(rank)
        rank.sync()
        if rank.index == 1:
            case(world)

    run = go(program)
    assert [(failure.lane, type(failure.error)) for failure in run.failures] == [(1, error)]
    text = str(run.failures[0].error)
    for word in ("rank 1", *words):
        assert word in text, text
    assert "\n" not in text
    ending = [event.kind for event in run.events if event.owner == 1][-2:]
    assert ending == ["sync", "raise"], "nothing of the operation happened"


@pytest.mark.parametrize("at", [-1, 4, 10**12])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_out_of_bounds(go, operation, at):
    refused(
        go,
        lambda w: OPERATIONS[operation](w, w.data, at),
        OutOfBounds,
        operation,
        str(at),
        "window 'data' [4] float32",
        "which has 4",
    )


@pytest.mark.parametrize("shape", [5, (2, 3), -1])
@pytest.mark.parametrize("operation", ["load", "remote_load"])
def test_too_many_elements(go, operation, shape):
    def case(w):
        peer = [1] if operation == "remote_load" else []
        getattr(w.rank, operation)(w.data, *peer, 0, shape)

    if operation == "remote_load" and shape == -1:
        refused(go, case, WrongShape, operation, "[-1]", "0 or more")
    else:
        refused(go, case, OutOfBounds, operation, "which has 4")


def test_a_source_that_does_not_fit(go):
    refused(
        go, lambda w: w.rank.put(w.data, 0, torch.ones(3), 2), OutOfBounds, "put of 3 elements at 2"
    )


@pytest.mark.parametrize("peer", [-1, 2, 64])
@pytest.mark.parametrize("operation", FAR)
def test_wrong_peer(go, operation, peer):
    refused(
        go,
        lambda w: OPERATIONS[operation](w, w.data, peer=peer),
        WrongPeer,
        operation,
        f"peer {peer}",
        "0..1",
    )


@pytest.mark.parametrize("peer", [-1, 2])
def test_wrong_peer_of_a_notify(go, peer):
    refused(
        go,
        lambda w: w.rank.notify(w.cells, peer, 0, 1),
        WrongPeer,
        "notify",
        f"peer {peer}",
        "0..1",
    )


@pytest.mark.parametrize("operation", FAR)
@pytest.mark.parametrize("what", ["buffer", "tensor"])
def test_only_windows_can_be_reached_from_afar(go, operation, what):
    refused(
        go,
        lambda w: OPERATIONS[operation](w, getattr(w, what)),
        WrongHandle,
        operation,
        "needs a window",
        what,
    )


@pytest.mark.parametrize("operation", ["load", "store"])
def test_a_tensor_is_no_memory_of_the_fabric(go, operation):
    refused(
        go,
        lambda w: OPERATIONS[operation](w, w.tensor),
        WrongHandle,
        operation,
        "needs a window or buffer",
        "tensor([1., 1.])",
    )


@pytest.mark.parametrize(
    ("case", "operation"),
    [
        (lambda w: w.rank.put_nbi(w.data, 0, [1.0]), "put_nbi"),
        (lambda w: w.rank.get(w.tensor, 0, w.data), "get"),
        (lambda w: w.rank.get_nbi(3.0, 0, w.data), "get_nbi"),
    ],
)
def test_what_stays_in_use_must_be_tracked_memory(go, case, operation):
    refused(go, case, WrongHandle, operation, "window or buffer")


def test_a_source_that_is_nothing(go):
    refused(
        go,
        lambda w: w.rank.put(w.data, 0, "abc"),
        WrongHandle,
        "put",
        "'abc'",
        "tensor or a number",
    )


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            lambda w: w.rank.store(w.data, torch.ones(1, dtype=torch.float64)),
            ("store", "float64", "float32"),
        ),
        (
            lambda w: w.rank.put(w.data, 0, torch.ones(1, dtype=torch.int32)),
            ("put", "int32", "float32"),
        ),
        (lambda w: w.rank.put(w.cells, 0, w.buffer), ("put", "buffer", "float32", "int32")),
        (lambda w: w.rank.put_nbi(w.cells, 0, w.buffer), ("put_nbi", "float32", "int32")),
        (lambda w: w.rank.get(w.buffer, 0, w.cells), ("get", "float32", "int32")),
        (
            lambda w: w.rank.remote_store(w.data, 0, torch.ones(1).half()),
            ("remote_store", "float16"),
        ),
        (
            lambda w: w.rank.put(w.flags, 0, torch.ones(1).bool(), atomic=AtomicType.Add),
            ("put", "atomic", "bool"),
        ),
        (
            lambda w: w.rank.window("complex", 1, torch.complex64),
            ("window 'complex'", "complex64", "bfloat16"),
        ),
        (lambda w: w.rank.buffer(1, torch.complex64), ("buffer", "complex64", "float32")),
        (lambda w: w.rank.buffer(1, float), ("buffer", "float", "float32")),
        (lambda w: w.rank.notify(w.cells, 0, 0, 1.5), ("notify", "1.5", "int32")),
    ],
)
def test_wrong_dtype(go, case, words):
    refused(go, case, WrongDtype, *words)


@pytest.mark.parametrize("operation", CELL_OPERATIONS)
def test_a_cell_is_an_int32_element_of_a_window(go, operation):
    call = CELL_OPERATIONS[operation]
    refused(go, lambda w: call(w, w.data), WrongDtype, operation, "window 'data'", "int32")
    refused(go, lambda w: call(w, w.buffer), WrongHandle, operation, "needs a window")
    refused(go, lambda w: call(w, w.cells, 4), OutOfBounds, operation, "cell 4", "which has 4")
    refused(go, lambda w: call(w, w.cells, -1), OutOfBounds, operation, "cell -1", "which has 4")
    refused(go, lambda w: call(w, w.cells.shifted(2)), Misaligned, operation, "2 bytes")


@pytest.mark.parametrize("amount", [2**31, -(2**31) - 1])
def test_a_cell_holds_an_int32(go, amount):
    refused(
        go,
        lambda w: w.rank.notify(w.cells, 0, 0, amount),
        OutOfBounds,
        "notify",
        str(amount),
        "2147483647",
    )
    refused(
        go,
        lambda w: w.rank.put_signal(
            w.data, 0, torch.ones(1), 0, w.cells, 0, amount, op=NotifyOp.Set
        ),
        OutOfBounds,
        "put_signal",
        str(amount),
        "2147483647",
    )


def test_amounts_may_be_numpy_ints(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        rank.notify(cells, rank.index, 0, numpy.int64(3))
        rank.wait(cells, 0, numpy.int32(3))

    run = go(program)
    assert run.ended == "returned"
    assert {type(event.value) for event in run.events if event.kind == "notify"} == {int}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            lambda w: w.rank.window("bad", (2, -1), torch.float32),
            ("window 'bad'", "[2, -1]", "0 or more"),
        ),
        (lambda w: w.rank.window("bad", 2.5, torch.float32), ("window 'bad'", "2.5", "int")),
        (lambda w: w.rank.buffer((1, 2.5), torch.float32), ("buffer", "(1, 2.5)", "int")),
        (lambda w: w.rank.load(w.data, 0, (-1,)), ("load", "[-1]", "0 or more")),
        (
            lambda w: w.data.view((-2,), torch.float32),
            ("view of window 'data'", "[-2]", "0 or more"),
        ),
    ],
)
def test_wrong_shape(go, case, words):
    refused(go, case, WrongShape, *words)


def test_a_view_must_be_aligned_and_inside(go):
    refused(
        go,
        lambda w: w.data.view(1, torch.float32, 2),
        Misaligned,
        "view",
        "byte offset 2",
        "multiple of 4",
        "nearest is 0",
    )
    refused(
        go,
        lambda w: w.data.view(4, torch.float32, 4),
        OutOfBounds,
        "view",
        "bytes 4..20",
        "which has 16",
    )
    refused(go, lambda w: w.data.view(1, torch.float32, -4), OutOfBounds, "view", "-4")


def test_dense_bytes_are_due(go):
    strided = torch.ones(4)[::2]
    refused(
        go,
        lambda w: w.rank.store(w.data, strided),
        NonContiguous,
        "store",
        "strides [2]",
        ".contiguous()",
    )
    refused(go, lambda w: w.rank.put(w.data, 0, strided), NonContiguous, "put", "shape [2]")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_use_after_free(go, operation):
    refused(
        go,
        lambda w: OPERATIONS[operation](w, w.gone),
        UseAfterFree,
        operation,
        "window 'gone'",
        "freed",
    )


def test_freed_sources_and_double_free(go):
    refused(go, lambda w: w.rank.put(w.data, 0, w.gone), UseAfterFree, "put", "'gone'")
    refused(go, lambda w: w.gone.free(), UseAfterFree, "free", "'gone'")
    refused(go, lambda w: w.gone.view(1, torch.float32).free(), UseAfterFree, "free")


HANDLE_AS_TENSOR = {
    "add": lambda h: h + 1,
    "radd": lambda h: torch.ones(4) + h,
    "multiply": lambda h: 2 * h,
    "index": lambda h: h[0],
    "assign": lambda h: h.__setitem__(0, 1.0),
    "length": lambda h: len(h),
    "iterate": lambda h: list(h),
    "sum": lambda h: h.sum(),
    "fill_": lambda h: h.fill_(0),
    "torch.add": lambda h: torch.add(h, 1),
    "torch.stack": lambda h: torch.stack([h, h]),
    "torch.tensor": lambda h: torch.tensor(h),
    "numpy": lambda h: numpy.asarray(h),
    "float": lambda h: float(h),
    "copy_": lambda h: torch.ones(4).copy_(h),
}


@pytest.mark.parametrize("kind", ["window", "buffer"])
@pytest.mark.parametrize("use", HANDLE_AS_TENSOR)
def test_a_handle_used_as_a_tensor_names_load(go, use, kind):
    def program(rank):
        handle = (
            rank.window("w", 4, torch.float32)
            if kind == "window"
            else rank.buffer(4, torch.float32)
        )
        HANDLE_AS_TENSOR[use](handle)

    for failure in go(program).failures:
        assert type(failure.error) is WrongHandle, failure.traceback
        assert "rank.load" in str(failure.error)


def test_a_handle_has_no_other_attributes(go):
    def program(rank):
        buffer = rank.buffer(4, torch.float32)
        return hasattr(buffer, "no_such_thing"), repr(buffer)

    assert go(program).results[0] == [(False, "buffer 'buffer0' [4] float32")]


def test_windows_of_different_size_are_refused_where_they_do_not_fit(go):
    def program(rank):
        rank.window("w", 4 + rank.index, torch.float32)

    run = go(program)
    assert [(failure.lane, type(failure.error)) for failure in run.failures] == [(1, WrongShape)]
    assert "needs 20 bytes" in str(run.failures[0].error)
    assert "allocated 16" in str(run.failures[0].error)


WRONG_KINDS = {
    "load at (0, 0)": lambda w: w.rank.load(w.data, (0, 0), 1),
    "load at 1.5": lambda w: w.rank.load(w.data, 1.5, 1),
    "load at None": lambda w: w.rank.load(w.data, None, 1),
    "store at 0.5": lambda w: w.rank.store(w.data, 1.0, 0.5),
    "put at (0, 1)": lambda w: w.rank.put(w.data, 0, w.tensor, (0, 1)),
    "put_nbi at [0]; an offset is one int that counts elements; in shape": (
        lambda w: w.rank.put_nbi(w.data, 0, w.buffer, [0])
    ),
    "get at '0'": lambda w: w.rank.get(w.buffer, 0, w.data, "0"),
    "remote_load at (0, 0)": lambda w: w.rank.remote_load(w.data, 0, (0, 0), 1),
    "notify at 0.5": lambda w: w.rank.notify(w.cells, 0, 0.5, 1),
    "wait at None": lambda w: w.rank.wait(w.cells, None, 1),
    "put_signal at 0.5": (
        lambda w: w.rank.put_signal(w.data, 0, w.tensor, 0, w.cells, 0.5, 1)
    ),
    "wait with cmp='ge'; choose WaitCmp.Eq or WaitCmp.Ge": (
        lambda w: w.rank.wait(w.cells, 0, 0, cmp="ge")
    ),
    "notify with op=2; choose NotifyOp.AtomicAdd or NotifyOp.Set": (
        lambda w: w.rank.notify(w.cells, 0, 0, 1, op=2)
    ),
    "put_signal with op='add'": (
        lambda w: w.rank.put_signal(w.data, 0, w.tensor, 0, w.cells, 0, 1, op="add")
    ),
    "put with atomic='add'; choose AtomicType.NoAtomic or AtomicType.Add": (
        lambda w: w.rank.put(w.data, 0, w.tensor, 0, atomic="add")
    ),
    "at byte offset 1.5; an int is due": lambda w: w.data.view(1, torch.float32, 1.5),
    "window with name=3; a str is due": lambda w: w.rank.window(3, 1, torch.float32),
    "window with init='ones'; 'zero', 'poison' or None is due": (
        lambda w: w.rank.window("x", 1, torch.float32, init="ones")
    ),
}


@pytest.mark.parametrize("words", WRONG_KINDS)
def test_arguments_of_a_wrong_kind(go, words):
    refused(go, WRONG_KINDS[words], WrongArgument, "rank 1: ", words)


@pytest.mark.parametrize("peer", [None, 0.5, "0", (0,)])
def test_a_peer_is_an_int(go, peer):
    for call in (
        lambda w: w.rank.put(w.data, peer, w.tensor),
        lambda w: w.rank.notify(w.cells, peer, 0, 1),
        lambda w: w.rank.remote_load(w.data, peer, 0, 1),
        lambda w: w.rank.get(w.buffer, peer, w.data),
    ):
        refused(go, call, WrongPeer, f"to peer {peer!r}; peers are 0..1")


@pytest.mark.parametrize("amount", [1.5, "1", None])
def test_an_awaited_value_is_an_int(go, amount):
    refused(go, lambda w: w.rank.wait(w.cells, 0, amount), WrongDtype, f"wait with {amount!r}")


def test_ints_of_other_kinds_are_ints(go):
    """numpy's ints, one-element tensors and bools have __index__."""

    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        one = torch.tensor(1)
        if rank.index == 0:
            rank.put(window, one, torch.ones(1), one)
        rank.barrier()
        return rank.load(window, one, 2).tolist()

    assert go(program).results[1] == [[1.0, 0.0]]
