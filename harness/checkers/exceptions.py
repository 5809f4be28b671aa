"""Whether every program ran without raising.

The rank that raised first is the finding, with its own traceback and its own line; ranks that
raised later and lanes that were left blocked are consequences. `PeerLost` in the survivors of a
crash is no finding. UseAfterFree is the lifetime checker's, NoSchedulingPoint the progress
checker's.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.checkers.failures import first_failure
from harness.finding import Finding
from harness.record import Run


class Exceptions:
    """One finding for the run; kind: the error's class in snake_case."""

    name = "exceptions"

    def check(self, run: Run) -> Iterable[Finding]:
        """The first rank that raised, or the host program (rank -1)."""
        return first_failure(run, self.name) if run.failures else ()
