"""A mutant for each checker, seen by no other one."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.probes import one_each as twin


@mutant(of=twin.allocate, expects="matching/different_call", ranks=2)
def shapes_differ(rank: Rank) -> Window:
    """Rank 1 takes its window for a row of two by two. Finding: matching/different_call.

    Smallest world: 2.
    """
    return rank.window("own", (2, 2) if rank.index == 1 else twin.COUNT, torch.float32)


@mutant(of=twin.check, expects="exceptions/value_error", ranks=1)
def refuses_its_row(rank: Rank, row: torch.Tensor) -> None:
    """The check has its condition the wrong way round. Finding: exceptions/value_error.

    Smallest world: 1.
    """
    if row.numel() == twin.COUNT:
        raise ValueError(f"rank {rank.index}: {row.numel()} elements")


@mutant(of=twin.announce, expects="deadlock/missing_notify", ranks=1)
def never_announced(rank: Rank, cells: Window, to: int) -> None:
    """Nobody is told that its row is there. Finding: deadlock/missing_notify. Smallest world: 1."""


@mutant(of=twin.raise_flag, expects="progress/livelock", ranks=1)
def flag_never_raised(rank: Rank, cells: Window, to: int) -> None:
    """Everybody polls a flag that nobody raises. Finding: progress/livelock. Smallest world: 1."""


@mutant(of=twin.mark, expects="races/unordered_write", ranks=2)
def all_leave_the_same_mark(rank: Rank, board: Window) -> None:
    """All ranks write one place; as they write the same, no value tells. Finding:
    races/unordered_write. Smallest world: 2.
    """
    rank.put(board, 0, torch.ones(1), 0)


@mutant(of=twin.settle, expects="lifetime/freed_in_flight", ranks=2)
def freed_while_read(rank: Rank) -> None:
    """No barrier before the window is freed: a slow neighbour reads freed memory, which still holds
    its values. Finding: lifetime/freed_in_flight. Smallest world: 2.
    """


@mutant(of=twin.hand_out, expects="integrity/wrong_value", ranks=1)
def one_too_much(row: torch.Tensor) -> torch.Tensor:
    """The result is off by one. Finding: integrity/wrong_value. Smallest world: 1."""
    return row + 1
