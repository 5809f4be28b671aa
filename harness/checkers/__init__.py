"""Checkers: each reads a finished run and returns findings. The order is the order of reports.

Root causes come first: ranks that call different collectives, then what raised, then what never
ended, then what was used too long or came out wrong.
"""

from harness.checkers.deadlock import Deadlock
from harness.checkers.exceptions import Exceptions
from harness.checkers.integrity import Integrity
from harness.checkers.lifetime import Lifetime
from harness.checkers.matching import Matching
from harness.checkers.progress import Progress
from harness.checkers.races import Races
from harness.finding import Checker

CHECKERS: tuple[Checker, ...] = (
    Matching(), Exceptions(), Deadlock(), Progress(), Lifetime(), Integrity()
)

# Races are found on any schedule that executes both accesses, so one run of a program is enough: the
# default run of each parameter set, and whatever is replayed. It costs about as much as the run.
RACES: Checker = Races()
