"""The barrier that every collective is built on: cells that count credits, and give them back.

The g-th barrier of a call: one credit to each peer, in the peer's cell of mine; then wait until each
peer's cell here holds g. When the call ends each rank takes what its peers gave back out of its cells,
so that the next call, of whatever kind, finds zeros and counts from 1 again. Adds commute, so a peer that
is a call ahead does no harm. Source: reference/pypto.md 2.4.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.frontends.pypto import operate
from harness.frontends.pypto.enums import NotifyOp, WaitCmp
from harness.frontends.pypto.operate import Domain, current
from harness.frontends.pypto.values import View

Cells = Callable[[int], View]  # by in-domain rank: the cell in which its credits are counted


class Credits:
    """The barriers of one call on one row of cells."""

    def __init__(self, signal: View, cells: Cells) -> None:
        self.domain: Domain = current().domain_of(signal)
        self.cells = cells
        self.given = 0
        me = self.domain.rank
        self.peers = [rank for rank in range(self.domain.nranks) if rank != me]

    def meet(self) -> None:
        """Return when every rank of the domain has come here as often."""
        self.given += 1
        mine = self.cells(self.domain.rank)
        for peer in self.peers:
            operate.notify(mine, peer, 1, op=NotifyOp.AtomicAdd)
        for peer in self.peers:
            operate.wait(self.cells(peer), self.given, cmp=WaitCmp.Ge)

    def settle(self) -> None:
        """Take the peers' credits of this call back."""
        if self.given:
            for peer in self.peers:
                operate.notify(
                    self.cells(peer), self.domain.rank, -self.given, op=NotifyOp.AtomicAdd
                )


def column(signal: View, block: int = 0) -> Cells:
    """The cells `[rank, block]`, or `[rank]`, of a mesh signal."""
    if len(signal.shape) == 1:
        return lambda rank: signal.cell((rank,))
    return lambda rank: signal.cell((rank, block))


def row(signal: View, number: int) -> Cells:
    """The cells `[number, rank]` of a ring signal."""
    return lambda rank: signal.cell((number, rank))
