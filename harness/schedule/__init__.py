"""Schedules: how the order of a simulated run is chosen, explored and written down.

The default run and its deviations live in the engine. Here: explorers (`Chooser`s that pick among
the enabled owners with a seed of their own), the conversion of an explored run into deviations, and
what friendly timing faults lower to. Explorers are asked at contested points only.
"""

from harness.schedule.chooser import Chooser, PausedLane, PausedRank, PreemptedRank, SlowRank
from harness.schedule.convert import deviations_of
from harness.schedule.pct import PCT
from harness.schedule.pos import POS
from harness.schedule.random_walk import RandomWalk

__all__ = [
    "PCT",
    "POS",
    "Chooser",
    "PausedLane", "PausedRank",
    "PreemptedRank",
    "RandomWalk",
    "SlowRank",
    "deviations_of",
]
