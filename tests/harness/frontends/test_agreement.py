"""Every parameter of a collective in which ranks can differ, and twins that may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.frontends.torch_distributed.agreement import disagreement, message_disagreement
from harness.frontends.torch_distributed.calls import Call, TensorMeta

F4 = TensorMeta((4,), "float32")


def world(kind="all_reduce", size=3, op="", root=-1, inputs=(F4,), outputs=(F4,)):
    group = tuple(range(size))
    return [
        Call(kind, rank, group, op=op, root=root, inputs=inputs, outputs=outputs) for rank in group
    ]


def changed(calls, rank, **fields):
    return [replace(call, **fields) if call.rank == rank else call for call in calls]


ALL_REDUCE = world(op="sum")
OTHER = {
    "different_collective": {"kind": "broadcast", "op": "", "root": 0},
    "different_reduce_op": {"op": "max"},
    "different_dtype": {"inputs": (TensorMeta((4,), "int32"),), "outputs": (TensorMeta((4,), "int32"),)},
    "different_shape": {"inputs": (TensorMeta((8,), "float32"),)},
    "different_group": {"group": (0, 2, 1)},
}


@pytest.mark.parametrize("kind", OTHER)
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_the_odd_rank_and_the_parameter_are_named(kind, odd):
    found = disagreement(changed(ALL_REDUCE, odd, **OTHER[kind]))
    assert found.kind == kind
    assert found.odd.rank == odd
    assert found.usual.rank == min({0, 1, 2} - {odd})
    assert found.text.startswith(f"rank {odd} ")
    assert sorted(rank for _, ranks in found.sides for rank in ranks) == [0, 1, 2]
    assert disagreement(ALL_REDUCE) is None


def test_the_texts_say_what_differs():
    def text(**fields):
        return disagreement(changed(ALL_REDUCE, 2, **fields)).text

    assert text(**OTHER["different_reduce_op"]) == "rank 2 reduces with max, rank 0 reduces with sum"
    assert text(**OTHER["different_dtype"]) == "rank 2 passes int32, rank 0 passes float32"
    assert text(inputs=(TensorMeta((2, 2), "float32"),)) == (
        "rank 2 passes [2, 2], rank 0 passes [4] (as many elements)"
    )
    assert text(**OTHER["different_collective"]) == (
        "rank 2 calls broadcast([4] float32, root=0), rank 0 calls all_reduce([4] float32, op=sum)"
    )


def test_of_two_ranks_the_higher_is_the_odd_one():
    found = disagreement(changed(ALL_REDUCE, 0, op="max")[:2])
    assert (found.odd.rank, found.usual.rank) == (1, 0)


def test_a_root_that_differs():
    calls = world("broadcast", root=0)
    found = disagreement(changed(calls, 1, root=1))
    assert (found.kind, found.text) == ("different_root", "rank 1 has root 1, rank 0 has root 0")
    assert disagreement(calls) is None


def test_what_may_differ():
    strided = TensorMeta((4,), "float32", (3,), 5, 0, 52)
    assert disagreement(changed(ALL_REDUCE, 1, async_op=True, inputs=(strided,), number=7)) is None
    reduce = world("reduce", op="sum", root=0)
    assert disagreement(changed(reduce, 0, outputs=(F4,))) is None
    gather = world("gather", root=0, outputs=())
    assert disagreement(changed(gather, 0, outputs=(F4,) * 3)) is None
    scatter = world("scatter", root=1, inputs=())
    assert disagreement(changed(scatter, 1, inputs=(F4,) * 3)) is None
    assert disagreement(world("barrier", inputs=(), outputs=())) is None
    assert disagreement(ALL_REDUCE[:1]) is None
    assert disagreement([]) is None


def test_one_collective_in_two_forms():
    flat = TensorMeta((12,), "float32")
    gathers = world("all_gather", outputs=(F4,) * 3)
    assert disagreement(changed(gathers, 1, kind="all_gather_into_tensor", outputs=(flat,))) is None
    short = changed(gathers, 1, kind="all_gather_into_tensor", inputs=(TensorMeta((3,), "float32"),))
    assert disagreement(short).kind == "different_shape"
    scatters = world("reduce_scatter", op="sum", inputs=(F4,) * 3)
    assert disagreement(changed(scatters, 2, kind="reduce_scatter_tensor", inputs=(flat,))) is None


def test_an_uneven_gather_that_every_rank_expects():
    parts = tuple(TensorMeta((rank + 1,), "float32") for rank in range(3))
    calls = [
        Call("all_gather", rank, (0, 1, 2), inputs=(parts[rank],), outputs=parts) for rank in range(3)
    ]
    assert disagreement(calls) is None
    assert disagreement(changed(calls, 1, outputs=(F4,) * 3)).kind == "different_shape"


def exchange(sent, due):
    size = len(sent)
    return [
        Call(
            "all_to_all_single", rank, tuple(range(size)), splits=(sent[rank], due[rank]),
            inputs=(TensorMeta((sum(sent[rank]), 2), "float32"),),
            outputs=(TensorMeta((sum(due[rank]), 2), "float32"),),
        )
        for rank in range(size)
    ]


def test_splits_must_fit_pair_by_pair():
    sent = [(1, 2, 3), (0, 1, 2), (4, 0, 1)]
    due = [tuple(row) for row in zip(*sent, strict=True)]
    assert disagreement(exchange(sent, due)) is None
    found = disagreement(exchange(sent, [due[0], (2, 1, 1), due[2]]))
    assert found.kind == "different_splits"
    assert {found.odd.rank, found.usual.rank} == {1, 2}
    assert found.text == "rank 2 sends 0 elements to rank 1, which expects 2 from it"
    worse = disagreement(exchange(sent, [due[0], (9, 1, 9), due[2]]))
    assert worse.odd.rank == 1, "both of its neighbours are right"
    evenly = [replace(call, splits=((), ())) for call in exchange([(2, 2)] * 2, [(2, 2)] * 2)]
    assert disagreement(evenly) is None
    assert disagreement([evenly[0], exchange([(2, 2), (1, 3)], [(2, 2)] * 2)[1]]).kind == (
        "different_splits"
    )


def test_a_list_of_tensors_exchanged():
    def of(rank, given, taken):
        metas = [tuple(TensorMeta((n,), "float32") for n in counts) for counts in (given, taken)]
        return Call("all_to_all", rank, (0, 1), inputs=metas[0], outputs=metas[1])

    assert disagreement([of(0, (1, 2), (1, 3)), of(1, (3, 1), (2, 1))]) is None
    assert disagreement([of(0, (1, 2), (1, 3)), of(1, (2, 1), (2, 1))]).kind == "different_splits"


def test_both_ends_of_a_message():
    send = Call("send", 0, (0, 1), peer=1, inputs=(F4,))
    receive = Call("recv", 1, (0, 1), peer=0, outputs=(TensorMeta((2, 2), "float32"),))
    assert message_disagreement(send, receive) is None
    small = message_disagreement(send, replace(receive, outputs=(TensorMeta((3,), "float32"),)))
    assert small.kind == "different_message_size"
    assert small.text == "rank 0 sends [4] float32, rank 1 receives [3] float32"
    other = message_disagreement(send, replace(receive, outputs=(TensorMeta((4,), "int32"),)))
    assert other.text == "rank 0 sends float32, rank 1 receives int32"
    assert other.kind == "different_message_dtype"
