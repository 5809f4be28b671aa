"""Whether every rank program ran without raising: each exception is a finding of its own rank."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import one_line
from harness.finding import Finding
from harness.record import Run, place, site_of


class Exceptions:
    """Placeholder until the checkers land."""

    name = "exceptions"

    def check(self, run: Run) -> Iterable[Finding]:
        """The first rank that raised."""
        for failure in run.failures[:1]:
            yield Finding(
                checker=self.name, kind=type(failure.error).__name__.lower(), rank=failure.lane,
                message=f"rank {failure.lane} raised at {place(failure.code, failure.lasti)}: "
                f"{one_line(failure.error)}",
                sites=(site_of(failure.code, failure.lasti, failure.operation),),
                traceback=failure.traceback,
            )
