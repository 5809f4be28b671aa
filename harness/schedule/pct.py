"""PCT: priorities with d-1 change points.

Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic Guarantees of
Finding Bugs, ASPLOS 2010. Owners (lanes and in-flight operations alike) get random priorities when
first seen; at each of `depth - 1` contested points drawn from the first `points` ones, the owner
about to run falls below all others. Finds a bug of depth d with probability at least 1/(n k^(d-1)).
"""

from __future__ import annotations

from harness.ambient import generator
from harness.fabric.choosing import Choosing
from harness.fabric.flight import InFlight
from harness.fabric.lanes import Lane
from harness.schedule.chooser import Chooser, Owner


class PCT(Chooser):
    """depth: d of the paper. points: contested points to expect (those of the default run)."""

    def __init__(self, depth: int, points: int, *seed: object) -> None:
        self.depth = depth
        self.points = max(points, 1)
        self._seed = seed
        self.restart()

    def restart(self) -> None:
        """Draw the change points and forget the priorities."""
        source = generator("pct", self.depth, *self._seed)
        self._random = source.random
        count = min(self.depth - 1, self.points)
        drawn = source.sample(range(1, self.points + 1), count)
        self._changes = {point: float(-index - 1) for index, point in enumerate(drawn)}
        self._priorities: dict[int, float] = {}
        self._step = 0

    def pick(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        """The enabled owner of the highest priority."""
        self._step += 1
        choice = self._highest(simulation, lanes, ops)
        low = self._changes.get(self._step)
        if low is not None:
            self._priorities[simulation.owner_number(choice)] = low
            choice = self._highest(simulation, lanes, ops)
        return choice

    def _highest(self, simulation: Choosing, lanes: list[Lane], ops: list[InFlight]) -> Owner:
        priorities = self._priorities
        best: Owner | None = None
        best_priority = 0.0
        owners: list[Owner] = [*lanes, *ops]
        for owner in owners:
            number = simulation.owner_number(owner)
            priority = priorities.get(number)
            if priority is None:
                priority = priorities[number] = 1.0 + self._random()
            if best is None or priority > best_priority:
                best, best_priority = owner, priority
        assert best is not None
        return best
