"""Sums that lack what a peer holds, because nobody has read it there."""

from __future__ import annotations

import pytest
import torch

from harness import scenario, values
from harness.diagnosis.table import BECAUSE

SIZE = 3


def reducing(reads, dtype=torch.float32):
    """A sum of everyone's own column, of those peers that `reads(rank, peer, size)` says."""

    def total(size):
        rows = [values(rank, SIZE, dtype=dtype) for rank in range(size)]
        return [sum(row[rank % SIZE] for row in rows).reshape(1).to(dtype) for rank in range(size)]

    @scenario(reference=total, ranks=(2, 6))
    def reduced(rank):
        data = rank.window("data", SIZE, dtype)
        rank.store(data, values(rank.index, SIZE, dtype=dtype))
        rank.sync()
        at = rank.index % SIZE
        held = rank.load(data, at, 1)
        for peer in range(rank.size):
            if peer != rank.index and reads(rank.index, peer, rank.size):
                held = held + rank.remote_load(data, peer, at, 1)
        return held

    return reduced


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_the_one_peer_that_was_left_out_is_named(judge, dtype):
    program = reducing(lambda _rank, peer, size: peer != size - 1, dtype)
    (finding,) = judge(program, 4).findings
    assert (finding.name, finding.rank) == ("integrity/wrong_value", 0)
    assert finding.evidence[0] == (
        "rank 0 never read 'data'[0] of rank 3, which held 4: just what the sum lacks"
    )
    assert finding.cause == BECAUSE["unread"][0]


def test_several_are_named_where_they_make_up_what_the_sum_lacks(judge):
    (finding,) = judge(reducing(lambda rank, peer, _: rank != 1 or peer == 2), 4).findings
    assert finding.rank == 1
    assert list(finding.evidence[:2]) == [
        "rank 1 never read 'data'[1] of rank 0, which held 65",
        "rank 1 never read 'data'[1] of rank 3, which held 68: just what the sum lacks",
    ]


def test_a_sum_that_lacks_something_else_blames_no_peer(judge):
    @scenario(reference=lambda size: [torch.full((1,), 100.0)] * size, ranks=(2, 6))
    def another(rank):
        data = rank.window("data", 1, torch.float32)
        rank.store(data, values(rank.index, 1))
        rank.sync()
        return rank.load(data, 0, 1) + rank.remote_load(data, (rank.index + 1) % rank.size, 0, 1)

    (finding,) = judge(another, 3).findings
    assert finding.name == "integrity/wrong_value"
    assert "never read" not in " ".join(finding.evidence)
