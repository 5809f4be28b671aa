"""What a call of torch.distributed says of itself."""

from __future__ import annotations

from harness.frontends.torch_distributed.calls import Call, TensorMeta


def test_a_call_reads_as_its_user_wrote_it():
    x = TensorMeta((4,), "float32")
    assert str(Call("all_reduce", 0, (0, 1), op="sum", inputs=(x,), outputs=(x,), names=("x",))) == (
        "all_reduce(x: [4] float32, op=sum)"
    )
    assert str(Call("send", 0, (0, 1), peer=1, tag=3, inputs=(x,))) == (
        "send([4] float32, to rank 1, tag=3)"
    )
    assert str(Call("recv", 0, (0, 1), outputs=(x,))) == "recv([4] float32, from any rank)"
    assert str(Call("barrier", 0, (0, 1))) == "barrier()"
    split = Call("all_to_all_single", 0, (0, 1), inputs=(x,), splits=((1, 3), ()))
    assert str(split) == "all_to_all_single([4] float32, in_splits=[1, 3])"
    assert split.family == "all_to_all"


def test_tensors_overlap_only_in_the_same_memory():
    x = TensorMeta((4,), "float32", (1,), 7, 0, 16)
    assert x.overlaps(TensorMeta((1,), "float32", (1,), 7, 12, 16))
    assert not x.overlaps(TensorMeta((1,), "float32", (1,), 7, 16, 20))
    assert not x.overlaps(TensorMeta((4,), "float32", (1,), 8, 0, 16))
    unknown = TensorMeta((4,), "float32")
    assert not unknown.overlaps(unknown)
    assert TensorMeta((), "bool").numel == 1
    assert TensorMeta((2, 0), "bool").numel == 0
