"""Calls of torch.distributed that do not fit each other, each with a twin that does."""

from __future__ import annotations

import pytest
import torch


def other_op(dist, rank):
    x = torch.zeros(4)
    dist.all_reduce(x, op="max" if rank == 2 else "sum")


def other_dtype(dist, rank):
    x = torch.zeros(4, dtype=torch.float64 if rank == 2 else torch.float32)
    dist.all_reduce(x, op="sum")


def other_shape(dist, rank):
    x = torch.zeros((2, 2) if rank == 2 else 4)
    dist.all_reduce(x, op="sum")


def other_root(dist, rank):
    x = torch.zeros(4)
    dist.broadcast(x, root=1 if rank == 2 else 0)


def other_collective(dist, rank):
    x = torch.zeros(4)
    if rank == 2:
        dist.broadcast(x, root=0)
    else:
        dist.all_reduce(x, op="sum")


@pytest.mark.parametrize(
    ("program", "kind", "text"),
    [
        (other_op, "different_reduce_op", "rank 2 reduces with max, rank 0 reduces with sum"),
        (other_dtype, "different_dtype", "rank 2 passes float64, rank 0 passes float32"),
        (other_shape, "different_shape", "rank 2 passes [2, 2], rank 0 passes [4] (as many elements)"),
        (other_root, "different_root", "rank 2 has root 1, rank 0 has root 0"),
        (other_collective, "different_collective",
         "rank 2 calls broadcast(x: [4] float32, root=0), rank 0 calls all_reduce(x: [4] float32, "
         "op=sum)"),
    ],
)
def test_what_differs_is_named_with_both_places(torch_world, program, kind, text):
    found = torch_world(program, 3)[1]
    assert [finding.name for finding in found] == [f"torch/{kind}"]
    assert found[0].rank == 2
    one_place = kind != "different_collective"
    assert found[0].message.startswith(f"collective 0: {text}, {'both at ' if one_place else 'at '}")
    assert found[0].message.count(f" in {program.__name__}") == 2 - one_place
    assert any(line.startswith("rank 2's collective 0: ") for line in found[0].evidence)
    assert found[0].cause
    assert found[0].remedy
    assert torch_world(program, 2)[1] == []


def other_group(dist, rank):
    dist.barrier(group=(0, 1))


def test_a_call_in_a_group_to_which_the_rank_does_not_belong(torch_world):
    (finding,) = torch_world(other_group, 3)[1]
    assert finding.name == "torch/non_member_call"
    assert finding.message.startswith("rank 2 calls barrier() at ")
    assert "in group [0, 1], of which it is no member" in finding.message
    assert torch_world(other_group, 2)[1] == []


def swapped(dist, rank):
    x, y = torch.ones(4), torch.ones(4)
    if rank == 2:
        dist.all_reduce(y, op="sum")
        dist.all_reduce(x, op="sum")
    else:
        dist.all_reduce(x, op="sum")
        dist.all_reduce(y, op="sum")


def swapped_in_a_loop(dist, rank):
    x, y = torch.ones(4), torch.ones(4)
    for t in [y, x] if rank == 2 else [x, y]:
        dist.all_reduce(t, op="sum")


def summed(dist, t):
    dist.all_reduce(t, op="sum")


def swapped_in_a_function(dist, rank):
    state = {"w": torch.ones(4), "b": torch.ones(4)}
    for key in sorted(state, reverse=rank == 2):
        summed(dist, state[key])


def swapped_parameters(dist, rank):
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(2)])
    for parameter in model.parameters():
        parameter.grad = torch.ones(2, 2)
    for parameter in list(model.parameters())[:: -1 if rank == 2 else 1]:
        dist.all_reduce(parameter.grad, op="sum")


def rotated(dist, rank):
    sums = {name: torch.ones(4) for name in "abc"}
    for name in "cab" if rank == 2 else "abc":
        dist.all_reduce(sums[name], op="sum")


def test_an_order_that_is_rotated(torch_world):
    (finding,) = torch_world(rotated, 3)[1]
    assert finding.name == "torch/different_order"
    assert "all_reduce(sums['c']: [4] float32, op=sum)" in finding.message
    assert "it makes the latter as number 1, and rank 0 the former as number 2" in finding.message
    assert torch_world(rotated, 2)[1] == []


@pytest.mark.parametrize(
    "program", [swapped, swapped_in_a_loop, swapped_in_a_function, swapped_parameters]
)
def test_an_exchanged_order_that_no_metadata_shows(torch_world, program):
    record, found = torch_world(program, 3)
    assert record.ended == "returned"
    assert [finding.name for finding in found] == ["torch/different_order"]
    assert found[0].rank == 2
    assert "rank 2 makes two collectives in another order than rank 0: as number 0 " in found[0].message
    assert torch_world(program, 2)[1] == []


def swapped_messages(dist, rank):
    key, value = torch.ones(4), torch.ones(4)
    if rank == 0:
        dist.send(key, peer=1)
        dist.send(value, peer=1)
    elif rank == 1:
        dist.recv(value, peer=0)
        dist.recv(key, peer=0)


def buffers_in_turns(dist, rank):
    even, odd = torch.ones(4), torch.ones(4)
    for given, taken in ((even, odd), (odd, even)):
        if rank == 0:
            dist.send(given, peer=1)
            dist.recv(taken, peer=1)
        else:
            dist.recv(taken, peer=0)
            dist.send(given, peer=0)


def names_of_their_own(dist, rank):
    first, second = torch.ones(4), torch.ones(4)
    if rank == 0:
        dist.send(first, peer=1)
        dist.send(second, peer=1)
    else:
        left, right = first, second
        del first, second
        dist.recv(right, peer=0)
        dist.recv(left, peer=0)


def test_messages_in_an_exchanged_order_that_no_metadata_shows(torch_world):
    (finding,) = torch_world(swapped_messages, 2)[1]
    assert finding.name == "torch/different_order"
    assert finding.rank == 1
    assert "receives two messages in another order than rank 0 sends them" in finding.message


@pytest.mark.parametrize("program", [buffers_in_turns, names_of_their_own])
def test_messages_that_only_have_other_names(torch_world, program):
    record, found = torch_world(program, 2)
    assert (record.ended, found) == ("returned", [])
    assert all(len(calls) > 1 for calls in record.torch_calls)


def swapped_kinds(dist, rank):
    x, y = torch.ones(4), torch.ones(8)
    if rank == 2:
        dist.broadcast(y, root=0)
        dist.all_reduce(x, op="sum")
    else:
        dist.all_reduce(x, op="sum")
        dist.broadcast(y, root=0)


def test_an_exchanged_order_of_two_kinds(torch_world):
    (finding,) = torch_world(swapped_kinds, 3)[1]
    assert finding.name == "torch/different_order"
    assert "each has still to make the other's" in finding.message
    assert torch_world(swapped_kinds, 2)[1] == []


def branches(dist, rank):
    x, y = torch.ones(4), torch.ones(4)
    if rank == 0:
        dist.broadcast(x, root=0)
    else:
        dist.broadcast(y, root=0)
    for _ in range(2):
        if rank == 0:
            dist.all_reduce(x, op="sum")
        else:
            dist.all_reduce(y, op="sum")
        dist.all_reduce(x, op="sum")


def roles(dist, rank):
    x, y = torch.ones(4), torch.ones(4)
    first, second = (x, y) if rank % 2 else (y, x)
    for _ in range(2):
        dist.all_reduce(first, op="sum")
        dist.all_reduce(second, op="sum")


def double_buffers(dist, rank):
    buffers = [torch.ones(4), torch.ones(4)]
    for step in range(4):
        dist.all_reduce(buffers[(step + rank) % 2], op="sum")


def turns(dist, rank):
    x = torch.ones(4)
    for root in range(3):
        part = torch.ones(4) if rank == root else x
        dist.broadcast(part, root=root)


@pytest.mark.parametrize("program", [branches, roles, double_buffers, turns])
def test_other_variables_and_branches_are_no_exchange(torch_world, program):
    assert torch_world(program, 3)[1] == []


def skips(dist, rank):
    x, y = torch.ones(4), torch.ones(8)
    if rank != 2:
        dist.all_reduce(x, op="sum")
    dist.all_reduce(y, op="sum")


def skips_one_alike(dist, rank):
    x, y = torch.ones(4), torch.ones(4)
    if rank != 2:
        dist.all_reduce(x, op="sum")
    dist.all_reduce(y, op="sum")
    z = torch.ones(4)
    dist.all_reduce(z, op="sum")


def skips_one_alike_then_differs(dist, rank):
    x, y = torch.ones(4), torch.ones(4)
    for _ in range(2):
        if rank != 2:
            dist.all_reduce(x, op="sum")
        dist.all_reduce(y, op="sum")
        dist.barrier()


def breaks_off(dist, rank):
    x = torch.ones(4)
    for step in range(4):
        if rank == 2 and step == 2:
            break
        dist.all_reduce(x, op="sum")
    dist.barrier()


def leaves_early(dist, rank):
    for step in range(3):
        if rank == 2 and step == 2:
            return
        dist.barrier()


def goes_elsewhere(dist, rank):
    if rank == 2:
        dist.barrier(group=(2,))
        return
    dist.barrier()


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (skips, "rank 2 has skipped all_reduce(x: [4] float32, op=sum) at "),
        (skips_one_alike, "rank 2 has skipped all_reduce(x: [4] float32, op=sum) at "),
        (skips_one_alike_then_differs, "rank 2 has skipped all_reduce(x: [4] float32, op=sum) at "),
        (breaks_off, "rank 2 has skipped all_reduce(x: [4] float32, op=sum) at "),
        (leaves_early, "rank 2 skipped collective 2, barrier() at "),
        (goes_elsewhere, "rank 2 left it out and went on to barrier() at "),
    ],
)
def test_the_rank_that_left_a_collective_out(torch_world, program, text):
    found = torch_world(program, 3)[1]
    assert [finding.name for finding in found] == ["torch/missing_collective"]
    assert found[0].rank == 2
    assert text in found[0].message
    assert torch_world(program, 2)[1] == []


def once_more(dist, rank):
    x = torch.ones(4)
    if rank == 2:
        dist.barrier()
    dist.all_reduce(x, op="sum")


def test_a_rank_with_one_call_more_is_told_by_who_lacks_it(torch_world):
    (finding,) = torch_world(once_more, 3)[1]
    assert finding.name == "torch/missing_collective"
    assert "rank 0 has skipped barrier() at " in finding.message
    assert ", which rank 2 makes as collective 0" in finding.message


def two_places(dist, rank):
    if rank == 0:
        x = torch.ones(4)
        dist.broadcast(x, root=0)
    if rank != 0:
        y = torch.ones(8)
        dist.broadcast(y, root=0)


def test_two_places_that_meet_are_no_gap(torch_world):
    (finding,) = torch_world(two_places, 3)[1]
    assert finding.name == "torch/different_shape"


def raises_before(dist, rank):
    if rank == 2:
        raise ValueError("no data")
    dist.barrier()


def test_a_rank_that_raised_is_left_to_others(torch_world):
    record, found = torch_world(raises_before, 3)
    assert len(record.failures) == 1
    assert found == []


def message(dist, rank):
    if rank == 0:
        dist.send(torch.zeros(4), peer=1)
    elif rank == 1:
        dist.recv(torch.zeros(3 if dist.world.size > 2 else (2, 2)), peer=0)


def message_of_another_dtype(dist, rank):
    if rank == 0:
        dist.send(torch.zeros(4), peer=1, tag=7)
    elif rank == 1:
        dist.recv(torch.zeros(4, dtype=torch.int32 if dist.world.size > 2 else None), peer=0, tag=7)


@pytest.mark.parametrize(
    ("program", "kind", "text"),
    [
        (message, "different_message_size",
         "message 0 from rank 0 to rank 1: rank 0 sends [4] float32, rank 1 receives [3] float32"),
        (message_of_another_dtype, "different_message_dtype",
         "message 0 from rank 0 to rank 1, tag 7: rank 0 sends float32, rank 1 receives int32"),
    ],
)
def test_messages_that_do_not_fit(torch_world, program, kind, text):
    (finding,) = torch_world(program, 3)[1]
    assert finding.name == f"torch/{kind}"
    assert text in finding.message
    assert torch_world(program, 2)[1] == []
