"""What explorers have in common, and those that do not sample: a slow, paused or preempted rank.

An explorer is restartable: the engine may repeat a run (a program that turns out to draw random
numbers), and must then get the same choices again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from harness.fabric.choosing import Choosing
from harness.fabric.flight import InFlight
from harness.fabric.lanes import Lane

Owner = Lane | InFlight


class Chooser(ABC):
    """An explorer. `preemptions` counts lanes left although they could have gone on."""

    preemptions = 0

    @abstractmethod
    def restart(self) -> None:
        """Forget the run so far; the next one gets the same choices."""

    @abstractmethod
    def pick(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """The owner that moves next; both lists are in owner order, one may be empty."""

    def choose(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """`pick`, counted."""
        choice = self.pick(simulation, lanes, ops)
        current = simulation.current
        if current.enabled and choice is not current and isinstance(choice, Lane):
            self.preemptions += 1
        return choice


def held_back(simulation: Choosing, op: InFlight) -> bool:
    """Whether a Hold keeps `op` back at this moment."""
    return op.release == 0 or op.release > len(simulation.events)


def default_choice(simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
    """What the default run would do: deliver what is not held, else go on, else the lowest lane."""
    for op in ops:
        if not held_back(simulation, op):
            return op
    if not lanes:
        return ops[0]
    return simulation.current if simulation.current in lanes else lanes[0]


class SlowRank(Chooser):
    """Rank `rank` moves only when no other lane can; deliveries happen at once."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def restart(self) -> None:
        """Nothing is remembered."""

    def pick(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """The default choice among the others, while there are others."""
        others = [lane for lane in lanes if lane.rank != self.rank]
        return default_choice(simulation, others or lanes, ops)


class PausedRank(Chooser):
    """Rank `rank` stops before its `nth` event until no other lane can move, then goes on."""

    def __init__(self, rank: int, nth: int) -> None:
        self.rank = rank
        self.nth = nth
        self.restart()

    def restart(self) -> None:
        """The pause is yet to come."""
        self._seen = 0
        self._counted = 0
        self._paused = False
        self._over = False

    def _pauses(self, lane: Lane) -> bool:
        return lane.rank == self.rank

    def pick(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """The default choice, without the paused lane while it pauses."""
        events = simulation.events
        for event in events[self._seen :]:
            lane = simulation.lane_numbered(event[0])
            self._counted += lane is not None and self._pauses(lane)
        self._seen = len(events)
        if self._counted >= self.nth and not self._over:
            others = [lane for lane in lanes if not self._pauses(lane)]
            if others or not all(held_back(simulation, op) for op in ops):
                self._paused = True
                return default_choice(simulation, others or lanes, ops)
            self._over = True
        return default_choice(simulation, lanes, ops)


class PausedLane(PausedRank):
    """Lane number `lane` stops before its `nth` event until no other lane can move, then goes on."""

    def __init__(self, lane: int, nth: int) -> None:
        self.lane = lane
        super().__init__(-1, nth)

    def _pauses(self, lane: Lane) -> bool:
        return lane.index == self.lane


class PreemptedRank(PausedRank):
    """Before its `nth` event rank `rank` gives way once: the lowest other lane goes on instead."""

    def pick(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """The default choice, except once."""
        if self._over:
            return default_choice(simulation, lanes, ops)
        choice = super().pick(simulation, lanes, ops)
        if self._paused and isinstance(choice, Lane):
            self._over = True
        return choice
