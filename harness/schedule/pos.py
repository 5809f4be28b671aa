"""POS: partial-order sampling.

Yuan, Yang, Gu: Partial Order Aware Concurrency Sampling, CAV 2018. Every pending event has a random
priority; the highest one runs; then the priorities of pending events that depend on it are drawn
anew, and its owner's next event gets one. Dependent: they overlap in bytes and at least one writes.
"""

from __future__ import annotations

from typing import Any

from harness.ambient import generator
from harness.fabric.choosing import Choosing
from harness.fabric.flight import InFlight
from harness.fabric.lanes import Lane
from harness.schedule.chooser import Chooser, Owner

READS = frozenset(("load", "remote_load", "wait"))
TOUCHES_MEMORY = READS | {"store"}

# (window, peer, first byte, end, writes), or None for an event that touches no memory
Access = tuple[int, int, int, int, bool] | None


def access_of(owner: Owner) -> Access:
    """The memory that the owner's pending event touches."""
    if isinstance(owner, InFlight):
        lo = owner.start - owner.target.base
        return owner.window, owner.peer, lo, lo + owner.nbytes, owner.kind != "get"
    pending: tuple[Any, ...] = owner.pending
    if pending[0] not in TOUCHES_MEMORY:
        return None
    return pending[1], pending[2], pending[3], pending[4], pending[0] not in READS


def dependent(one: Access, other: Access) -> bool:
    """Whether the order of two events can matter."""
    if one is None or other is None:
        return False
    return (
        one[:2] == other[:2] and one[2] < other[3] and other[2] < one[3] and (one[4] or other[4])
    )


class POS(Chooser):
    """Partial-order sampling with a seed."""

    def __init__(self, *seed: object) -> None:
        self._seed = seed
        self.restart()

    def restart(self) -> None:
        """Begin the stream of priorities anew."""
        self._random = generator("pos", *self._seed).random
        self._priorities: dict[int, float] = {}

    def pick(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """The owner whose pending event has the highest priority."""
        priorities = self._priorities
        owners: list[Owner] = [*lanes, *ops]
        best, best_priority = owners[0], -1.0
        for owner in owners:
            number = simulation.owner_number(owner)
            priority = priorities.get(number)
            if priority is None:
                priority = priorities[number] = self._random()
            if priority > best_priority:
                best, best_priority = owner, priority
        chosen = access_of(best)
        if chosen is not None:
            for owner in owners:
                if owner is not best and dependent(chosen, access_of(owner)):
                    priorities[simulation.owner_number(owner)] = self._random()
        priorities.pop(simulation.owner_number(best), None)
        return best
