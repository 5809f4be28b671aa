"""Uniform random walk over the enabled owners."""

from __future__ import annotations

from harness.ambient import generator
from harness.fabric.choosing import Choosing
from harness.fabric.flight import InFlight
from harness.fabric.lanes import Lane
from harness.schedule.chooser import Chooser, Owner


class RandomWalk(Chooser):
    """Each contested point runs any enabled owner with equal probability."""

    def __init__(self, *seed: object) -> None:
        self._seed = seed
        self.restart()

    def restart(self) -> None:
        """Begin the stream of choices anew."""
        self._random = generator("random_walk", *self._seed).random

    def pick(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """Any enabled owner."""
        index = int(self._random() * (len(lanes) + len(ops)))
        return lanes[index] if index < len(lanes) else ops[index - len(lanes)]
