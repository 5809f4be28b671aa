"""Mutants of rung 5: access before the order exists, and the wrong neighbour."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.collectives import remote_load_store as twin


@mutant(of=twin.exchange, expects="integrity/unwritten_memory", ranks=1)
def load_before_sent(
    rank: Rank, inbox: Window, outbox: Window, own: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The boxes are read before the ranks have met.

    Finding: integrity/unwritten_memory. Smallest world: 1, with the remote_store held back.
    """
    twin.send(rank, inbox, outbox, own)
    count = own.numel()
    rows = rank.load(inbox, 0, count), rank.remote_load(outbox, twin.left_of(rank), 0, count)
    twin.all_have_sent(rank)
    return rows


@mutant(of=twin.all_have_sent, expects="integrity/unwritten_memory", ranks=1)
def sync_without_quiet(rank: Rank) -> None:
    """The ranks meet, but nobody has made sure that its remote_store was delivered.

    Finding: integrity/unwritten_memory, with the remote_store held back. Smallest world: 1.
    """
    rank.sync()


@mutant(of=twin.left_of, expects="integrity/wrong_value", ranks=3)
def fetches_from_right(rank: Rank) -> int:
    """The row is fetched from the right neighbour, who is the left one in a world of two.

    Finding: integrity/wrong_value. Smallest world: 3.
    """
    return (rank.index + 1) % rank.size


@mutant(of=twin.all_have_read, expects="integrity/wrong_value", ranks=2)
def boxes_reused_early(rank: Rank) -> None:
    """No barrier ends the round, so a fast rank's next row lands where a slow one still reads.

    Finding: integrity/wrong_value, the row of the next round. Smallest world: 2.
    """
