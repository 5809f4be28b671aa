"""Scratch buffers that ranks use in opposite turns are no exchanged order; values that are ready are."""

from __future__ import annotations

import pytest
import torch


def by_parity(dist, rank):
    a, b = torch.empty(4), torch.empty(4)
    for step in range(4):
        buffer = a if (rank + step) % 2 else b
        buffer.fill_(step)
        dist.all_reduce(buffer, op="sum")


def in_branches(dist, rank):
    a, b = torch.empty(4), torch.empty(4)
    for step in range(4):
        if (rank + step) % 2:
            a.fill_(step)
            dist.all_reduce(a, op="sum")
        else:
            b.fill_(step)
            dist.all_reduce(b, op="sum")


def from_a_pool(dist, rank):
    pool = {"x": torch.empty(4), "y": torch.empty(4), "z": torch.empty(4)}
    names = sorted(pool, reverse=rank == 1)
    for step in range(6):
        pool[names[step % 3]].fill_(step)
        dist.all_reduce(pool[names[step % 3]], op="sum")


def filled_during_the_call(dist, rank):
    a, b = torch.empty(4), torch.empty(4)
    now, then = (a, b) if rank % 2 else (b, a)
    for step in range(4):
        work = dist.all_reduce(now, op="sum", async_op=True)
        then.fill_(step)
        work.wait()
        now, then = then, now


def broadcast_by_parity(dist, rank):
    a, b = torch.empty(4), torch.empty(4)
    for step in range(4):
        buffer = a if (rank + step) % 2 else b
        if rank == 2:
            buffer.fill_(step)
        dist.broadcast(buffer, root=2)


def sent_by_parity(dist, rank):
    a, b = torch.empty(4), torch.empty(4)
    for step in range(4):
        buffer = a if (rank + step) % 2 else b
        if rank == 0:
            buffer.fill_(step)
            dist.send(buffer, peer=1)
        elif rank == 1:
            dist.recv(buffer, peer=0)


SCRATCH = [
    by_parity, in_branches, from_a_pool, filled_during_the_call, broadcast_by_parity, sent_by_parity,
]


@pytest.mark.parametrize("program", SCRATCH)
def test_scratch_buffers_in_opposite_turns(torch_world, program):
    record, found = torch_world(program, 3)
    assert (record.ended, found) == ("returned", [])
    names = [[call.names for call in record.torch_calls[rank]] for rank in (0, 1)]
    assert names[0] != names[1]


def metrics_of_each_epoch(dist, rank):
    held = {"loss": torch.zeros(1), "hits": torch.zeros(1)}
    for _ in range(3):
        for metric in held.values():
            metric.zero_()
        for name in sorted(held, reverse=rank == 1):
            dist.all_reduce(held[name], op="sum")
            held[name].mul_(0.5)


def written_just_before_in_two_places(dist, rank):
    loss, hits = torch.empty(1), torch.empty(1)
    for epoch in range(2):
        if rank == 1:
            hits.fill_(epoch)
            dist.all_reduce(hits, op="sum")
            loss.fill_(epoch)
            dist.all_reduce(loss, op="sum")
        else:
            loss.fill_(epoch)
            dist.all_reduce(loss, op="sum")
            hits.fill_(epoch)
            dist.all_reduce(hits, op="sum")


def written_anew_on_one_rank_only(dist, rank):
    a, b = torch.ones(4), torch.ones(4)
    for tensor in (b, a) if rank == 1 else (a, b):
        if rank == 1:
            tensor.mul_(2)
        dist.all_reduce(tensor, op="sum")


def parts_of_one_tensor(dist, rank):
    flat = torch.ones(8)
    low, high = flat[:4], flat[4:]
    for tensor in (high, low) if rank == 1 else (low, high):
        dist.all_reduce(tensor, op="sum")
        tensor.mul_(0.5)


def weights_from_the_last_rank(dist, rank):
    weight, bias = torch.ones(4), torch.ones(4)
    for tensor in (bias, weight) if rank == 1 else (weight, bias):
        dist.broadcast(tensor, root=2)


def sent_from_two_places(dist, rank):
    key, value = torch.ones(4), torch.ones(4)
    for layer in range(2):
        if rank == 0:
            key.fill_(layer)
            dist.send(key, peer=1)
            value.fill_(layer)
            dist.send(value, peer=1)
        elif rank == 1:
            dist.recv(value, peer=0)
            dist.recv(key, peer=0)


EXCHANGED = [
    metrics_of_each_epoch, written_just_before_in_two_places, written_anew_on_one_rank_only,
    parts_of_one_tensor, weights_from_the_last_rank, sent_from_two_places,
]


@pytest.mark.parametrize("program", EXCHANGED)
def test_values_that_are_ready_or_written_in_two_places_in_a_row(torch_world, program):
    record, found = torch_world(program, 3)
    assert record.ended == "returned"
    assert [(finding.name, finding.rank) for finding in found] == [("torch/different_order", 1)]


def ring(dist, rank, *, crossed):
    """Keys and values go round; `crossed`: every rank receives them the other way round."""
    size = dist.world.size
    key, value = torch.ones(4), torch.ones(4)
    for _ in range(3):
        next_key, next_value = torch.empty(4), torch.empty(4)
        taken = [next_value, next_key] if crossed else [next_key, next_value]
        works = [dist.isend(given, peer=(rank + 1) % size) for given in (key, value)]
        works += [dist.irecv(one, peer=(rank - 1) % size) for one in taken]
        for work in works:
            work.wait()
        key, value = next_key, next_value


def test_messages_that_are_passed_on_as_each_other(torch_world):
    record, found = torch_world(lambda dist, rank: ring(dist, rank, crossed=True), 3)
    assert (record.ended, found[0].name) == ("returned", "torch/different_order")
    assert "receives two messages in another order than rank" in found[0].message
    assert torch_world(lambda dist, rank: ring(dist, rank, crossed=False), 3)[1] == []


def two_pairs_in_turns(dist, rank):
    size = dist.world.size
    now, then = {"k": torch.ones(4), "v": torch.ones(4)}, {"k": torch.ones(4), "v": torch.ones(4)}
    k0, v0, k1, v1 = now["k"], now["v"], then["k"], then["v"]
    for given, taken in ((k0, k1), (v0, v1), (k1, k0), (v1, v0)) * 2:
        works = [dist.isend(given, peer=(rank + 1) % size), dist.irecv(taken, peer=(rank - 1) % size)]
        for work in works:
            work.wait()


def sorted_by_a_relay(dist, rank):
    """The second rank passes on in another order what the third takes in that order."""
    key, value = torch.ones(4), torch.ones(4)
    if rank == 0:
        dist.send(key, peer=1)
        dist.send(value, peer=1)
    elif rank == 1:
        dist.recv(key, peer=0)
        dist.recv(value, peer=0)
        dist.send(value, peer=2)
        dist.send(key, peer=2)
    else:
        dist.recv(value, peer=1)
        dist.recv(key, peer=1)


@pytest.mark.parametrize("program", [two_pairs_in_turns, sorted_by_a_relay])
def test_messages_that_are_passed_on_as_what_they_are(torch_world, program):
    record, found = torch_world(program, 3)
    assert (record.ended, found) == ("returned", [])
