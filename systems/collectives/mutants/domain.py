"""Mutants of the domain: memory that is cleared after others can reach it, or released too early."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.collectives import domain as twin


@mutant(of=twin.announce, expects="deadlock/overwritten_signal", ranks=2)
def pad_zeroed_after_it_was_visible(rank: Rank, pad: Window) -> None:
    """The allocation is all that the ranks meet in; a slow one wipes what a fast one has signalled.

    Source: PyTorch pull request 196546, simpler pull request 1500. Finding:
    deadlock/overwritten_signal. Smallest world: 2.
    """
    twin.clear(rank, pad)


@mutant(of=twin.collect, expects="lifetime/freed_in_flight", ranks=2)
def released_before_the_last_row(rank: Rank, rows: Window, pad: Window) -> torch.Tensor:
    """One row too few is awaited, so the last one may arrive where memory was released.

    Source: algorithms.md, windows freed while operations to them are under way. Finding:
    lifetime/freed_in_flight. Smallest world: 2.
    """
    rank.wait(pad, 0, rank.size - 2)
    return rank.load(rows, 0, rows.numel)
