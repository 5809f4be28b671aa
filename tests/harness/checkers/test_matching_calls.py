"""Collective calls that differ between ranks."""

from __future__ import annotations

import torch

from harness import scenario


def made(program):
    return scenario(reference=lambda size, **_: [None] * size, ranks=(1, 8))(program)



@made
def other_order(rank) -> None:
    if rank.index == 2:
        rank.barrier()
        rank.window("w", 4, torch.float32)
    else:
        rank.window("w", 4, torch.float32)
        rank.barrier()


def test_different_call_names_both_calls_and_the_odd_rank(judge):
    outcome = judge(other_order, 4)
    finding = outcome.findings[0]
    assert finding.name == "matching/different_call"
    assert finding.rank == 2
    assert "rank 2's collective call 0 is barrier()" in finding.message
    assert "rank 0's is window('w' [4] float32)" in finding.message
    assert any("ranks 0, 1 and 3: window" in line for line in finding.evidence)
    assert judge(other_order, 2).findings == ()


@made
def other_shape(rank) -> None:
    rank.window("w", 4 + (rank.index == 1), torch.float32)


def test_a_window_of_another_shape_differs(judge):
    finding = judge(other_shape, 3).findings[0]
    assert finding.name == "matching/different_call"
    assert "window('w' [5] float32)" in finding.message
    assert judge(other_shape, 1).findings == ()


@made
def one_less(rank) -> None:
    for _ in range(3 - (rank.index == 1)):
        rank.sync()


def test_missing_call_of_a_rank_that_returned(judge):
    outcome = judge(one_less, 3)
    names = [finding.name for finding in outcome.findings]
    assert names == ["matching/missing_call", "deadlock/missing_arrival"]
    finding = outcome.findings[0]
    assert finding.rank == 1
    assert "rank 1 returned without collective call 2" in finding.message
    assert "rank 1 made 2 collective calls" in finding.evidence


@made
def mixed_but_right(rank) -> None:
    if rank.index:
        rank.sync()
    else:
        rank.barrier()


@made
def blocked_before(rank) -> None:
    cell = rank.window("sig", 1, torch.int32)
    if rank.index == 1:
        rank.wait(cell, 0, 1)
    rank.barrier()


@made
def raises_before(rank) -> None:
    if rank.index == 1:
        raise ValueError("no")
    rank.barrier()


def test_a_shorter_sequence_is_no_finding_when_its_rank_could_not_go_on(judge):
    assert judge(mixed_but_right, 3).findings == ()
    assert [f.checker for f in judge(blocked_before, 3).findings] == ["deadlock"]
    assert [f.checker for f in judge(raises_before, 3).findings] == ["exceptions"]
