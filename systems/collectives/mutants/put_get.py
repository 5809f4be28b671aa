"""Mutants of rung 6: puts that are not paired with notify, fence, wait or acknowledgement."""

from __future__ import annotations

import torch

from harness import Rank, Window, mutant
from systems.collectives import put_get as twin


@mutant(of=twin.push, expects="deadlock/missing_notify", ranks=1)
def put_without_notify(rank: Rank, inbox: Window, cells: Window, own: torch.Tensor) -> None:
    """The put is not followed by a notify.

    Finding: deadlock/missing_notify, the reader waits for ever. Smallest world: 1. In larger worlds
    the ring of waiting readers reads as a deadlock/cycle.
    """
    rank.put(inbox, twin.right_of(rank), own)


@mutant(of=twin.take_pushed, expects="integrity/unwritten_memory", ranks=1)
def put_without_wait(rank: Rank, inbox: Window, cells: Window, n: int, round: int) -> torch.Tensor:
    """The reader does not wait for the put.

    Finding: integrity/unwritten_memory. Smallest world: 1, with the put held back.
    """
    row = rank.load(inbox, 0, n)
    rank.notify(cells, twin.left_of(rank), twin.PUSHED_TAKEN, 1)
    return row


@mutant(of=twin.push, expects="integrity/unwritten_memory", ranks=1)
def notify_overtakes_put(rank: Rank, inbox: Window, cells: Window, own: torch.Tensor) -> None:
    """No fence stands between the put and its notify.

    Finding: integrity/unwritten_memory, with the put held back. Smallest world: 1.
    """
    rank.put(inbox, twin.right_of(rank), own)
    rank.notify(cells, twin.right_of(rank), twin.PUSHED, 1)


@mutant(of=twin.await_taken, expects="integrity/wrong_value", ranks=2)
def reader_not_awaited(rank: Rank, cells: Window, cell: int, round: int) -> None:
    """The writer does not wait until the reader has taken the last row.

    Finding: integrity/wrong_value, the row of the next round. Smallest world: 2.
    """


@mutant(of=twin.pull, expects="integrity/unwritten_memory", ranks=1)
def get_without_quiet(
    rank: Rank, outbox: Window, cells: Window, n: int, round: int
) -> torch.Tensor:
    """The landing buffer of a get_nbi is read before quiet.

    Finding: integrity/unwritten_memory, with the get held back. Smallest world: 1.
    """
    rank.wait(cells, twin.STAGED, round + 1)
    landing = rank.buffer(n, torch.float32)
    rank.get_nbi(landing, twin.left_of(rank), outbox)
    rank.notify(cells, twin.left_of(rank), twin.STAGED_TAKEN, 1)
    return rank.load(landing, 0, n)
