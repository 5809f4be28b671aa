"""Mutants of rung 3: windows and plain tensors mistaken for each other, sizes, a late barrier."""

from __future__ import annotations

import torch

from harness import Buffer, Rank, Window, World, mutant
from systems.collectives import window_buffer as twin


@mutant(of=twin.publish, expects="exceptions/wrong_handle", ranks=1)
def window_used_as_tensor(rank: Rank, window: Window, own: torch.Tensor) -> None:
    """A window-bound tensor is computed with as if it were a plain one.

    Finding: exceptions/wrong_handle, a window is a handle. Smallest world: 1.
    """
    rank.store(window, torch.add(window, own))  # type: ignore[call-overload]


@mutant(of=twin.row_of, expects="integrity/wrong_value", ranks=2)
def window_loaded_as_shared(
    rank: Rank, x: Buffer, window: Window, peer: int, n: int
) -> torch.Tensor:
    """A window-bound tensor is loaded as if it were one memory for all, as a host tensor is.

    Finding: integrity/wrong_value, each rank finds its own row in its peers' places. Smallest
    world: 2.
    """
    if peer == rank.index:
        return rank.load(x, peer * n, n)
    return rank.load(window, 0, n)


@mutant(of=twin.row_of, expects="exceptions/wrong_handle", ranks=2)
def tensor_taken_for_window(
    rank: Rank, x: Buffer, window: Window, peer: int, n: int
) -> torch.Tensor:
    """A plain tensor is read remotely as if it were bound to a window.

    Finding: exceptions/wrong_handle, no peer can reach it. Smallest world: 2.
    """
    if peer == rank.index:
        return rank.load(x, peer * n, n)
    return rank.remote_load(x, peer, peer * n, n)  # type: ignore[arg-type]


@mutant(of=twin.gather, expects="integrity/unwritten_memory", ranks=2)
def read_before_barrier(rank: Rank, x: Buffer, window: Window, n: int) -> torch.Tensor:
    """The one-sided reads come before the barrier that should order them.

    Finding: integrity/unwritten_memory, a peer's part is read before the peer has written it.
    Smallest world: 2.
    """
    rows = torch.cat([twin.row_of(rank, x, window, peer, n) for peer in range(rank.size)])
    rank.barrier()
    return rows


@mutant(of=twin.window_bytes, expects="exceptions/out_of_bounds", ranks=1)
def bytes_against_rank_count(world: World, n: int) -> int:
    """The window's size is given as a count of ranks where bytes are due.

    Finding: exceptions/out_of_bounds, the view does not fit. Smallest world: 1.
    """
    return world.size
