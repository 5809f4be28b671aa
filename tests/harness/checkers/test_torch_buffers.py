"""Tensors of asynchronous calls: dropped handles, memory in use twice, touched in flight; and twins."""

from __future__ import annotations

import torch

from harness.checkers.torch_program import TorchProgram
from harness.record import Touched


def dropped(dist, rank):
    x = torch.zeros(4)
    handle = dist.all_reduce(x, op="sum", async_op=True)
    if rank != 2:
        handle.wait()


def test_a_handle_that_nobody_waits_for(torch_world):
    (finding,) = torch_world(dropped, 3)[1]
    assert finding.name == "torch/dropped_handle"
    assert finding.rank == 2
    assert finding.message.startswith(
        "rank 2 never waited for its all_reduce(x: [4] float32, op=sum) at "
    )
    assert torch_world(dropped, 2)[1] == []


def dropped_and_wrong(dist, rank):
    x = torch.zeros(4)
    dist.all_reduce(x, op="sum", async_op=True)
    dist.all_reduce(x, op="max" if rank else "sum")


def test_after_something_worse_a_dropped_handle_is_a_consequence(torch_world):
    names = [finding.name for finding in torch_world(dropped_and_wrong, 2)[1]]
    assert names == ["torch/different_reduce_op"]


def one_tensor_twice(dist, rank):
    x = torch.zeros(8)
    first = dist.all_reduce(x[:5], op="sum", async_op=True)
    if rank == 2:
        second = dist.all_reduce(x[3:], op="sum", async_op=True)
        first.wait()
    else:
        first.wait()
        second = dist.all_reduce(x[3:], op="sum", async_op=True)
    second.wait()


def parts_of_one(dist, rank):
    x = torch.zeros(8)
    handles = [dist.all_reduce(x[n : n + 4], op="sum", async_op=True) for n in (0, 4)]
    handles += [dist.isend(x, peer=1 - rank), dist.isend(x, peer=1 - rank, tag=1)]
    y = torch.zeros(16)
    handles += [dist.irecv(y[:8], peer=1 - rank), dist.irecv(y[8:], peer=1 - rank, tag=1)]
    for handle in handles:
        handle.wait()


def test_two_calls_in_flight_on_one_memory(torch_world):
    (finding,) = torch_world(one_tensor_twice, 3)[1]
    assert finding.name == "torch/overlapping_in_flight"
    assert finding.rank == 2
    assert any(line.startswith("it was waited for at ") for line in finding.evidence)
    assert torch_world(one_tensor_twice, 2)[1] == []


def test_two_that_only_read_do_not_clash_and_one_that_writes_does(torch_world):
    (finding,) = torch_world(parts_of_one, 2)[1]
    assert finding.message.startswith("rank 0's send(x: [8] float32, to rank 1)")
    assert "uses memory that its all_reduce([4] float32, op=sum) at " in finding.message


def messages_of_one(dist, rank):
    x, y = torch.zeros(8), torch.zeros(16)
    handles = [dist.isend(x, peer=1 - rank), dist.isend(x, peer=1 - rank, tag=1)]
    handles += [dist.irecv(y[:8], peer=1 - rank), dist.irecv(y[8:], peer=1 - rank, tag=1)]
    for handle in handles:
        handle.wait()


def test_messages_share_a_source_and_fill_parts(torch_world):
    assert torch_world(messages_of_one, 2)[1] == []


def right(dist, rank):
    x = torch.zeros(4)
    dist.all_reduce(x, op="sum", async_op=True).wait()


def touched(record, *, writes):
    call = record.torch_calls[1][0]
    record.touched = [
        Touched(call.number, 1, "before wait", 0, 1, writes, "aten.add_", 1, right.__code__, 0)
    ]
    return list(TorchProgram().check(record))


def test_a_tensor_that_was_touched_in_flight(torch_world):
    record, found = torch_world(right, 2)
    assert found == []
    (finding,) = touched(record, writes=True)
    assert finding.name == "torch/changed_in_flight"
    assert finding.rank == 1
    assert finding.message.startswith("the tensor of rank 1's all_reduce(x: [4] float32, op=sum) at ")
    assert "was changed before the call was complete" in finding.message
    assert any("rank 1 called aten.add_ at " in line for line in finding.evidence)
    assert touched(record, writes=False)[0].name == "torch/read_in_flight"
