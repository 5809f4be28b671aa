"""Two ranks on one card: certain cases only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.checkers.torch_devices import same_device
from harness.frontends.torch_distributed.calls import Call, TensorMeta

F4 = (TensorMeta((4,), "float32"),)


def judged(*cards, group=None, kind="all_reduce"):
    """The finding of a run in which rank i makes a collective on cards[i], then one more."""
    ranks = range(len(cards))
    run = SimpleNamespace(ranks=len(cards))
    run.torch_calls = [
        [
            Call(
                kind, rank, tuple(group or ranks), "0", seq, inputs=F4, card=cards[rank],
                at=10 * seq + rank,
            )
            for seq in range(2)
        ]
        for rank in (group or ranks)
    ]
    return same_device(run)


def test_two_ranks_on_one_card():
    found = judged("0:0", "0:1", "0:0")
    assert (found.name, found.rank) == ("torch/same_device", 2)
    assert found.message.startswith("ranks 0 and 2 are both on CUDA device 0 in all_reduce([4] float32)")
    assert "set_device" in found.remedy
    assert len(found.evidence) == 2


@pytest.mark.parametrize("cards", [
    ("0:0", "0:1"), ("0:0", "1:0"), ("", ""), ("0:0", ""), ("0:0",),
], ids=["cards", "machines", "unknown", "one known", "alone"])
def test_no_alarm(cards):
    assert judged(*cards) is None


def test_of_a_group():
    found = judged("0:0", "0:0", "0:0", group=[1, 2])
    assert "ranks 1 and 2" in found.message
    assert "of group [1, 2]" in found.message
