"""Sums that lack what a peer holds, because nobody has read it there."""

from __future__ import annotations

import pytest
import torch

from harness import scenario, values
from harness.diagnosis.table import BECAUSE

SIZE = 3


def totals(size, dtype=torch.float32):
    """Of each rank: everyone's element of its own column, added up."""
    rows = [values(rank, SIZE, dtype=dtype) for rank in range(size)]
    return [sum(row[rank % SIZE] for row in rows).reshape(1).to(dtype) for rank in range(size)]


def reducing(reads, dtype=torch.float32):
    """A sum of everyone's own column, of those peers that `reads(rank, peer, size)` says."""

    @scenario(reference=lambda size: totals(size, dtype), ranks=(2, 6))
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
        "rank 0 never read 'data'[0] of rank 3, which held 4: just what makes the sum wrong"
    )
    assert finding.cause == BECAUSE["unread"][0]


def test_several_are_named_where_they_make_up_what_the_sum_lacks(judge):
    (finding,) = judge(reducing(lambda rank, peer, _: rank != 1 or peer == 2), 4).findings
    assert finding.rank == 1
    assert list(finding.evidence[:2]) == [
        "rank 1 never read 'data'[1] of rank 0, which held 65",
        "rank 1 never read 'data'[1] of rank 3, which held 68: just what makes the sum wrong",
    ]


def test_a_peer_that_was_read_in_place_of_others_and_one_that_was_read_twice(judge):
    @scenario(reference=totals, ranks=(2, 6))
    def itself(rank):
        data = rank.window("data", SIZE, torch.float32)
        rank.store(data, values(rank.index, SIZE))
        rank.sync()
        at = rank.index % SIZE
        return sum(rank.remote_load(data, rank.index, at, 1) for _ in range(rank.size))

    (finding,) = judge(itself, 3).findings
    assert list(finding.evidence[:3]) == [
        "rank 0 never read 'data'[0] of rank 1, which held 2",
        "rank 0 never read 'data'[0] of rank 2, which held 3",
        "rank 0 read 'data'[0] of rank 0 3 times, which held 1: just what makes the sum wrong",
    ]

    @scenario(reference=totals, ranks=(2, 6))
    def twice(rank):
        data = rank.window("data", SIZE, torch.float32)
        rank.store(data, values(rank.index, SIZE))
        rank.sync()
        at = rank.index % SIZE
        held = rank.load(data, at, 1)
        return held + sum(rank.remote_load(data, peer, at, 1) for peer in range(rank.size))

    (finding,) = judge(twice, 3).findings
    assert finding.evidence[0] == (
        "rank 0 read 'data'[0] of rank 0 2 times, which held 1: just what makes the sum wrong"
    )


def test_of_a_wrong_sum_that_others_copied_the_rank_that_made_it_is_named(judge):
    @scenario(reference=lambda size: [sum(values(r, 1) for r in range(size))] * size, ranks=(2, 6))
    def gathered(rank):
        data, whole = (rank.window(name, 1, torch.float32) for name in ("data", "whole"))
        rank.store(data, values(rank.index, 1))
        rank.sync()
        if rank.index == 2:
            peers = range(rank.size - 1)  # the last one is left out
            rank.store(whole, sum(rank.remote_load(data, peer, 0, 1) for peer in peers))
        rank.sync()
        return rank.remote_load(whole, 2, 0, 1)

    (finding,) = judge(gathered, 4).findings
    assert finding.rank == 2
    assert finding.evidence[0].startswith("rank 2 never read 'data'[0] of rank 3, which held 4")


@pytest.mark.parametrize("chunk", [1, 2])
def test_a_chunk_of_a_longer_result(judge, chunk):
    """Each rank's sum of its own chunk, then all chunks."""
    def whole(size):
        return [sum(values(r, size * chunk) for r in range(size))] * size

    @scenario(reference=whole, ranks=(2, 6))
    def scattered(rank):
        size = rank.size * chunk
        data, sums = (rank.window(name, size, torch.float32) for name in ("data", "sums"))
        rank.store(data, values(rank.index, size))
        rank.sync()
        at = rank.index * chunk
        peers = range(rank.size - (rank.index == 1))
        rank.store(sums, sum(rank.remote_load(data, peer, at, chunk) for peer in peers), at)
        rank.sync()
        return torch.cat([rank.remote_load(sums, r, r * chunk, chunk) for r in range(rank.size)])

    (finding,) = judge(scattered, 3).findings
    assert (finding.rank, finding.message[:25]) == (1, f"'result' of rank 1: element {chunk}"[:25])
    assert finding.evidence[0].startswith(f"rank 1 never read 'data'[{chunk}] of rank 2")


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
