"""What faults count as matching: exactly what they would change, whatever the arguments are."""

import pytest
import torch

from faults.addressing import (
    MisalignedBase,
    NonContiguousSource,
    OffsetOffByOne,
    WindowCountsRanks,
    WrongPeer,
    WrongShape,
)
from faults.host import DispatchLoopTooShort, MissingShareMemory, ScalarBeforeTensor
from faults.operations import extents, one_shorter, strided, whole
from faults.signals import DroppedNotify, ThresholdOffByOne, WrongCell, WrongNotifyOp
from harness import Buffer, Drop, NotifyOp, Operation, Window, registry
from harness.fabric.memory import Region


def window(*shape, dtype=torch.int32):
    count = torch.empty(shape, dtype=dtype).nbytes
    made = Window(0, "w", [Region(count, zero=True) for _ in range(2)], 0, shape, dtype)
    made.on_free = lambda _: None
    return made


def notify(size=2, **args):
    given = {"cell": window(2), "peer": 1, "at": 0, "value": 1, "op": NotifyOp.AtomicAdd}
    return Operation("notify", 0, size, {**given, **args})


def put_signal(**args):
    given = {
        "dst": window(4), "peer": 1, "src": torch.ones(4), "at": 0, "cell": window(2),
        "cell_at": 1, "amount": 1, "op": NotifyOp.AtomicAdd,
    }
    return Operation("put_signal", 0, 2, {**given, **args})


def test_wrong_cell_goes_to_the_next_and_needs_two():
    assert WrongCell().rewrite(notify()).args["at"] == 1
    assert WrongCell().rewrite(put_signal()).args["cell_at"] == 0
    assert not WrongCell().matches(notify(cell=window(1)))
    assert not WrongCell().matches(notify(at=2))  # out of bounds already


def test_wrong_peer_needs_a_second_rank():
    assert WrongPeer().rewrite(notify()).args["peer"] == 0
    assert not WrongPeer().matches(notify(size=1, peer=0))
    assert not WrongPeer().matches(notify(peer=2))  # no such peer already


def test_a_put_signal_delivers_its_data_without_the_signal():
    assert DroppedNotify().rewrite(notify()) == Drop()
    silent = DroppedNotify().rewrite(put_signal(op=NotifyOp.Set))
    assert (silent.args["amount"], silent.args["op"]) == (0, NotifyOp.AtomicAdd)
    assert not DroppedNotify().matches(silent)


def test_the_notify_op_is_swapped_both_ways():
    assert WrongNotifyOp().rewrite(notify()).args["op"] is NotifyOp.Set
    assert WrongNotifyOp().rewrite(notify(op=NotifyOp.Set)).args["op"] is NotifyOp.AtomicAdd


@pytest.mark.parametrize("delta", [-1, 1])
def test_offsets_and_thresholds_move_by_delta(delta):
    load = Operation("load", 0, 2, {"src": window(4), "at": 2, "shape": 1})
    wait = Operation("wait", 0, 2, {"cell": window(1), "at": 0, "value": 5})
    assert OffsetOffByOne(delta=delta).rewrite(load).args["at"] == 2 + delta
    assert ThresholdOffByOne(delta=delta).rewrite(wait).args["value"] == 5 + delta
    assert not OffsetOffByOne().matches(notify())  # a cell's offset is wrong_cell's


def test_a_base_moves_for_rank_and_host_windows():
    made = Operation("window", 0, 2, {"name": "w", "shape": 4})
    bound = Operation("bind", 0, 2, {"window": None, "byte_offset": 8})
    assert MisalignedBase().rewrite(made).args["byte_offset"] == 4
    assert MisalignedBase(nbytes=1).rewrite(bound).args["byte_offset"] == 9


def test_one_shorter_by_kind_of_extent():
    assert one_shorter(3) == (2,)
    assert one_shorter((2, 3)) == (2, 2)
    assert one_shorter(torch.arange(3)).tolist() == [0, 1]
    assert one_shorter(window(2, 2)).shape == (3,)
    for nothing in (0, (), (2, 0), torch.empty(0), torch.ones(2, 2).T, 1.5, "shape", window(0)):
        assert one_shorter(nothing) is None
    assert not WrongShape().matches(Operation("store", 0, 2, {"value": 1.5, "dst": window(1)}))


def test_a_strided_source_has_the_same_elements():
    source = torch.arange(6).reshape(2, 3)
    gapped = strided(source)
    assert torch.equal(gapped, source)
    assert not gapped.is_contiguous()
    for unchanged in (torch.ones(1), torch.ones(()), source.T, 3, window(4)):
        assert strided(unchanged) is None
    assert not NonContiguousSource().matches(put_signal(src=window(4)))


def test_a_window_that_has_one_element_a_rank_stays():
    assert not WindowCountsRanks().matches(Operation("alloc", -1, 4, {"size": 4, "dtype": None}))
    assert not WindowCountsRanks().matches(Operation("window", 0, 4, {"shape": (2, 2)}))
    other = WindowCountsRanks().rewrite(Operation("window", 0, 4, {"shape": (2, 3)}))
    assert other.args["shape"] == 4


def prepare(*tensors):
    return Operation("prepare", -1, 2, {"tensors": tensors, "names": (), "private": ()})


def test_all_tensors_of_a_prepare_become_private():
    tensors = (torch.ones(1), torch.ones(1))
    assert list(MissingShareMemory().rewrite(prepare(*tensors)).args["private"]) == [0, 1]
    assert not MissingShareMemory().matches(prepare())


def dispatch(*args, size=2):
    return Operation("dispatch", 0, size, {"program": print, "args": args, "device": 0})


def test_a_scalar_moves_only_before_a_tensor():
    tensor = torch.ones(1)
    assert ScalarBeforeTensor().rewrite(dispatch(tensor, 3, 4)).args["args"] == (3, tensor, 4)
    for unchanged in (dispatch(), dispatch(3), dispatch(tensor), dispatch(3, tensor)):
        assert not ScalarBeforeTensor().matches(unchanged)


def test_a_loop_over_one_rank_cannot_be_too_short():
    assert DispatchLoopTooShort().matches(dispatch())
    assert not DispatchLoopTooShort().matches(dispatch(size=1))


def test_integers_and_shapes_of_every_kind():
    assert whole(torch.tensor(3)) == 3
    assert whole(True) == 1
    for no_integer in (1.0, "1", None, torch.ones(2), torch.ones(())):
        assert whole(no_integer) is None
    assert extents(torch.Size((2, 3))) == (2, 3)
    assert extents(7) == (7,)
    for no_shape in (None, 1.5, (2, "x"), [None]):
        assert extents(no_shape) is None


ARGUMENTS = {
    "window": ("name", "shape", "dtype", "init", "group"),
    "buffer": ("shape", "dtype"),
    "load": ("src", "at", "shape"),
    "store": ("dst", "value", "at"),
    "put": ("dst", "peer", "src", "at", "atomic"),
    "put_nbi": ("dst", "peer", "src", "at", "atomic"),
    "get": ("dst", "peer", "src", "at"),
    "get_nbi": ("dst", "peer", "src", "at"),
    "remote_load": ("win", "peer", "at", "shape"),
    "remote_store": ("win", "peer", "value", "at", "atomic"),
    "put_signal": ("dst", "peer", "src", "at", "cell", "cell_at", "amount", "op"),
    "notify": ("cell", "peer", "at", "value", "op"),
    "wait": ("cell", "at", "value", "cmp"),
    "fence": (), "quiet": (), "sync": ("group",), "barrier": ("group",),
    "alloc": ("size", "dtype", "name", "init"),
    "bind": ("window", "byte_offset"),
}


REWRITING = [name for name, fault in registry.faults().items() if not fault.lowers]


@pytest.mark.parametrize("name", REWRITING)
@pytest.mark.parametrize(
    "rubbish",
    [None, "text", 1.5, -1, torch.ones(2, 2).T, torch.ones(2), object()],
    ids=["none", "text", "float", "negative", "strided", "tensor", "object"],
)
def test_no_fault_breaks_on_arguments_that_the_entry_checks_refuse(name, rubbish):
    """Faults come before the entry checks: whatever a program passes, the checks must have it."""
    fault = registry.faults()[name]()
    for kind, names in ARGUMENTS.items():
        given = {argument: rubbish for argument in names}
        if kind == "bind":
            given["byte_offset"] = 0  # the fabric's own argument, not the program's
        op = Operation(kind, 0, 2, given)
        if fault.matches(op):
            assert fault.rewrite(op) is not op


def test_a_buffer_is_shortened_as_a_window_is():
    buffer = Buffer(0, "b", [Region(8, zero=True)], 0, (2,), torch.float32)
    get = Operation("get", 0, 2, {"dst": buffer, "peer": 1, "src": window(2), "at": 0})
    assert WrongShape().rewrite(get).args["dst"].shape == (1,)
    assert not WrongShape().matches(
        Operation("get", 0, 2, {**get.args, "dst": buffer.shifted(1)})
    )
