"""Mutants of rung 9: meetings that are no meetings, and chunks that do not cover the row."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.collectives import allreduce_twophase as twin


@mutant(of=twin.signal_row, expects="integrity/unwritten_memory", ranks=2)
def two_barriers_one_row(phase: int) -> int:
    """Both meetings count on one row of cells, so the first one's arrivals end the second one.

    Finding: integrity/unwritten_memory, a result is read before its last chunk is here. Smallest
    world: 2.
    """
    return 0


@mutant(of=twin.meet, expects="integrity/unwritten_memory", ranks=2)
def chunks_overtaken(rank: Rank, signals: Window, phase: int, epoch: int) -> None:
    """No fence stands between the chunks and the notifies that announce them.

    Finding: integrity/unwritten_memory, with a chunk held back. Smallest world: 2.
    """
    first = twin.signal_row(phase) * rank.size
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(signals, peer, first + rank.index, 1)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.wait(signals, first + peer, epoch)


@mutant(of=twin.meet, expects="integrity/stale_value", ranks=2)
def sticky_arrivals(rank: Rank, signals: Window, phase: int, epoch: int) -> None:
    """Every round waits for the first round's count, which no later round resets.

    Finding: integrity/stale_value, a chunk of the round before is read (or, where a slow rank reads, a
    later one: integrity/wrong_value). Smallest world: 2.
    """
    first = twin.signal_row(phase) * rank.size
    rank.fence()
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(signals, peer, first + rank.index, 1)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.wait(signals, first + peer, 1)


@mutant(of=twin.chunk, expects="integrity/unwritten_memory", ranks=2)
def remainder_dropped(n: int, size: int, index: int) -> tuple[int, int]:
    """All chunks have n // size elements, so what remains belongs to nobody.

    Finding: integrity/unwritten_memory, the last elements of a row that `size` does not divide.
    Smallest world: 2.
    """
    count = n // size
    return index * count, count


@mutant(of=twin.allreduce, expects="deadlock/missing_notify", ranks=2)
def empty_chunk_returns_early(
    rank: Rank, parts: Window, whole: Window, signals: Window, own: torch.Tensor, round: int
) -> None:
    """A rank whose chunk is empty returns at once and skips the meetings.

    Finding: deadlock/missing_notify, the other ranks wait for it. Smallest world: 2, with one
    element.
    """
    start, count = twin.chunk(own.numel(), rank.size, rank.index)
    if count == 0:
        return
    twin.scatter(rank, parts, own)
    twin.meet(rank, signals, twin.SCATTERED, round + 1)
    twin.gather(rank, whole, twin.reduce(rank, parts, count), start)
    twin.meet(rank, signals, twin.GATHERED, round + 1)
