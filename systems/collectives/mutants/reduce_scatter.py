"""Mutants of rung 14: chunks with wrong bounds, rows left out, read or staged too early."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.collectives import reduce_scatter as twin


@mutant(of=twin.summands, expects="integrity/wrong_value", ranks=1)
def own_row_left_out(rank: Rank) -> list[int]:
    """A rank adds up what its peers have and forgets its own row.

    Finding: integrity/wrong_value. Smallest world: 1.
    """
    return [peer for peer in range(rank.size) if peer != rank.index]


@mutant(of=twin.bounds, expects="integrity/wrong_value", ranks=2)
def remainder_left_out(n: int, size: int, index: int) -> tuple[int, int]:
    """Every chunk has floor(n / P) elements, so the last ones of a row are in none.

    Finding: integrity/wrong_value, with a size that the world size does not divide. Smallest
    world: 2.
    """
    chunk = n // size
    return index * chunk, (index + 1) * chunk


@mutant(of=twin.bounds, expects="exceptions/out_of_bounds", ranks=2)
def chunks_rounded_up(n: int, size: int, index: int) -> tuple[int, int]:
    """Every chunk has ceil(n / P) elements, so the last ones lie behind the row.

    Finding: exceptions/out_of_bounds. Smallest world: 2.
    """
    chunk = -(-n // size)
    return index * chunk, (index + 1) * chunk


@mutant(of=twin.chunk_of, expects="integrity/wrong_value", ranks=2)
def chunk_of_the_source(rank: Rank, staged: Window, source: int, n: int) -> torch.Tensor:
    """In a peer's row a rank reads where the peer's chunk begins, not where its own does.

    Finding: integrity/wrong_value. Smallest world: 2.
    """
    lo, hi = twin.bounds(n, rank.size, rank.index)
    return rank.remote_load(staged, source, twin.bounds(n, rank.size, source)[0], hi - lo)


@mutant(of=twin.await_staged, expects="integrity/stale_value", ranks=2)
def round_forgotten(rank: Rank, cells: Window, source: int, round: int) -> None:
    """Every round waits for the first row of a peer, so later ones are read too early.

    Finding: integrity/stale_value. Smallest world: 2.
    """
    if source != rank.index:
        rank.wait(cells, twin.STAGED * rank.size + source, 1)


@mutant(of=twin.await_read, expects="integrity/wrong_value", ranks=2)
def readers_not_awaited(rank: Rank, cells: Window, round: int) -> None:
    """The next row is staged over one that peers are still to read.

    Finding: integrity/wrong_value. Smallest world: 2.
    """


@mutant(of=twin.tell_read, expects="deadlock/missing_notify", ranks=2)
def empty_chunk_leaves_early(rank: Rank, cells: Window, elements: int) -> None:
    """A rank whose chunk is empty returns at once: it has nothing to add up, so nothing to tell.

    Finding: deadlock/missing_notify, its peers wait for its word before they stage another row.
    Smallest world: 2, one more than the row has elements.
    """
    if elements:
        twin.tell(rank, cells, twin.READ)
