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
from harness.finding import Checker

CHECKERS: tuple[Checker, ...] = (
    Matching(), Exceptions(), Deadlock(), Progress(), Lifetime(), Integrity()
)
