"""Standstills of torch.distributed programs: rings shown whole, partners that are gone; and twins."""

from __future__ import annotations

import re

import torch


def plain(text):
    """`text` without its places."""
    return re.sub(r" at \S+:\d+ in \w+", "", text)


def all_send_first(dist, rank):
    size = dist.world.size
    x = torch.zeros(4)
    dist.send(x, peer=(rank + 1) % size)
    dist.recv(x, peer=(rank - 1) % size)


def even_send_first(dist, rank):
    size = dist.world.size
    x, y = torch.zeros(4), torch.zeros(4)
    if rank % 2:
        dist.recv(y, peer=(rank - 1) % size)
    dist.send(x, peer=(rank + 1) % size)
    if rank % 2 == 0:
        dist.recv(y, peer=(rank - 1) % size)


def test_a_ring_of_sends_is_shown_whole(torch_world):
    record, (finding,) = torch_world(all_send_first, 3)
    assert record.ended == "blocked"
    assert finding.name == "torch/send_recv_cycle"
    assert plain(finding.message) == (
        "ranks 0, 1 and 2 wait for each other: rank 0 waits in send(x: [4] float32, to rank 1) -> "
        "rank 1 waits in send(x: [4] float32, to rank 2) -> rank 2 waits in "
        "send(x: [4] float32, to rank 0) -> rank 0"
    )
    assert finding.message.count("in all_send_first") == 3
    assert len(finding.graph) == 4
    assert torch_world(even_send_first, 4)[1] == []


def collective_against_message(dist, rank):
    x = torch.zeros(4)
    if rank == 0:
        dist.barrier()
        dist.send(x, peer=1)
    else:
        dist.recv(x, peer=0)
        dist.barrier()


def message_then_collective(dist, rank):
    x = torch.zeros(4)
    if rank == 0:
        dist.send(x, peer=1)
    else:
        dist.recv(x, peer=0)
    dist.barrier()


def test_a_collective_and_a_message_that_wait_for_each_other(torch_world):
    (finding,) = torch_world(collective_against_message, 2)[1]
    assert finding.name == "torch/cycle"
    assert plain(finding.message) == (
        "ranks 0 and 1 wait for each other: rank 0 waits in barrier() -> rank 1 waits in "
        "recv(x: [4] float32, from rank 0) -> rank 0"
    )
    assert torch_world(message_then_collective, 2)[1] == []


def groups_crossed(dist, rank):
    if rank == 1:
        dist.barrier(group=(1, 2))
        dist.barrier(group=(0, 1))
    elif rank == 0:
        dist.barrier(group=(0, 1))
        dist.barrier(group=(0, 2))
    else:
        dist.barrier(group=(0, 2))
        dist.barrier(group=(1, 2))


def test_groups_that_are_entered_in_crossed_order(torch_world):
    (finding,) = torch_world(groups_crossed, 3)[1]
    assert finding.name == "torch/cycle"
    assert "rank 0 waits in barrier() at " in finding.message
    assert "of group [0, 1] -> rank 1" in finding.message


def no_partner(dist, rank):
    if rank == 0:
        dist.recv(torch.zeros(4), peer=1, tag=3)
    elif rank == 1:
        dist.isend(torch.zeros(4), peer=0, tag=3 if dist.world.size == 2 else 4)


def test_a_message_whose_partner_has_another_tag(torch_world):
    (finding,) = torch_world(no_partner, 3)[1]
    assert finding.name == "torch/missing_message"
    assert finding.rank == 1
    assert plain(finding.message) == (
        "rank 1 returned without the send for which rank 0 waits in recv([4] float32, from rank 1, "
        "tag=3); its last call was send([4] float32, to rank 0, tag=4)"
    )
    assert "also without a partner: rank 1's send([4] float32, to rank 0, tag=4) with tag 4 at " in (
        finding.evidence[-1]
    )
    assert torch_world(no_partner, 2)[0].ended == "returned"


def any_rank(dist, rank):
    x = torch.zeros(4)
    if rank == 0:
        for _ in range(dist.world.size - 1):
            dist.recv(x, peer=-1)
    elif rank == 1 or dist.world.size == 3:
        dist.send(x, peer=0)


def test_a_recv_from_any_rank_waits_for_none_that_is_left(torch_world):
    (finding,) = torch_world(any_rank, 4)[1]
    assert finding.name == "torch/missing_message"
    assert "ranks 1, 2 and 3 returned without the send for which rank 0 waits" in finding.message
    assert torch_world(any_rank, 3)[1] == []


def waits_behind(dist, rank):
    if rank == 2:
        return
    dist.barrier(group=(0, 1))
    dist.barrier()


def test_a_rank_that_returned_is_the_root_of_those_that_wait(torch_world):
    (finding,) = torch_world(waits_behind, 3)[1]
    assert finding.name == "torch/missing_collective"
    assert finding.rank == 2
