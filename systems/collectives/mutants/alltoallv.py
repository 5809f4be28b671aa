"""Mutants of rung 15, ragged: counts taken for something else, or read too early."""

from __future__ import annotations

from harness import NotifyOp, Rank, Window, mutant
from systems.collectives import alltoallv as twin


@mutant(of=twin.offsets, expects="integrity/wrong_value", ranks=2)
def counts_for_offsets(counts: list[int]) -> list[int]:
    """A block is looked for at its number times its count, as if all had the same.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    return [target * elements for target, elements in enumerate(counts)]


@mutant(of=twin.send_counts, expects="integrity/wrong_value", ranks=2)
def transposed_counts(rank: Rank, n: int) -> list[int]:
    """What a rank receives from each is taken for what it sends to each.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    return [twin.count(source, rank.index, n) for source in range(rank.size)]


@mutant(of=twin.announce, expects="deadlock/missing_notify", ranks=2)
def empty_block_not_announced(
    rank: Rank, received: Window, cells: Window, counts: list[int]
) -> None:
    """Nothing is sent to a rank that gets no elements: no count and no arrival either.

    Finding: deadlock/missing_notify, it waits for ever. Smallest world: 2, where a block is empty.
    """
    twin.keep_order(rank)
    for target, elements in enumerate(counts):
        if elements:
            rank.notify(received, target, rank.index, elements, op=NotifyOp.Set)
    twin.keep_order(rank)
    for target, elements in enumerate(counts):
        if elements:
            rank.notify(cells, target, twin.ARRIVED * rank.size + rank.index, 1)


@mutant(of=twin.place, expects="integrity/wrong_value", ranks=2)
def places_move_with_the_size(inbox: Window, source: int, n: int) -> int:
    """A source has room for n elements, so that its place moves when n changes.

    Then it overlaps the place that another source had in the last round, and what this source was
    told says nothing about that one. Finding: integrity/wrong_value. Smallest world: 2.
    """
    return source * n


@mutant(of=twin.keep_order, expects="integrity/unwritten_memory", ranks=1)
def arrival_overtakes_block(rank: Rank) -> None:
    """No fence stands between a block, its count and its arrival.

    Finding: integrity/unwritten_memory, with the put held back. Smallest world: 1.
    """


@mutant(of=twin.await_count, expects="integrity/wrong_value", ranks=1)
def count_read_before_arrival(
    rank: Rank, received: Window, cells: Window, source: int, round: int
) -> int:
    """The count is read first and then the arrival awaited: it is the last round's, or none yet.

    Finding: integrity/wrong_value. Smallest world: 1, with the count held back.
    """
    elements = int(rank.load(received, source, 1))
    rank.wait(cells, twin.ARRIVED * rank.size + source, round + 1)
    return elements


@mutant(of=twin.await_taken, expects="integrity/wrong_value", ranks=2)
def readers_not_awaited(rank: Rank, cells: Window, round: int) -> None:
    """Block and count are written over those that their target is still to read.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
