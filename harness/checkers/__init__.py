"""Checkers: each reads a finished run and returns findings. The order is the order of reports."""

from harness.checkers.exceptions import Exceptions
from harness.finding import Checker

CHECKERS: tuple[Checker, ...] = (Exceptions(),)
