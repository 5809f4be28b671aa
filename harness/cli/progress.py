"""Live progress of a hunt or a matrix: a line that redraws itself on a terminal, plain lines elsewhere.

Drawn on stderr from the hunting thread alone: a thread of its own would see the virtual clock.
"""

from __future__ import annotations

from collections import Counter
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.ambient import now
from harness.cli.output import complain
from harness.hunt import Statistics
from harness.matrix import Row
from harness.report.hunt_text import rate

REDRAW_SECONDS = 0.1
PLAIN_SECONDS = 15.0


class _Drawn:
    """A line on stderr that `draw` renews, now and then."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._shown = now()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                self._line(), console=self._console, auto_refresh=False, transient=True
            )
            self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self) -> None:
        """Show the line as it is now, unless it was shown just before."""
        since = now() - self._shown
        if self._live is not None and since >= REDRAW_SECONDS:
            self._live.update(self._line(), refresh=True)
            self._shown = now()
        elif self._live is None and since >= PLAIN_SECONDS:
            complain(self._line().plain, prefix="")
            self._shown = now()

    def _line(self) -> Text:
        return Text(self._told(), no_wrap=True, overflow="ellipsis")

    def _told(self) -> str:
        raise NotImplementedError


class Progress(_Drawn):
    """Use as a context around one hunt; `update` after each plan."""

    def __init__(self, title: str, findings: int) -> None:
        super().__init__()
        self.statistics = Statistics()
        self._title = title
        self._findings = findings

    def update(self, statistics: Statistics) -> None:
        """What the hunt has done so far."""
        self.statistics = statistics
        self.draw()

    def minimising(self) -> None:
        """The hunt has found something, which is now made smaller."""
        if self._live is not None:
            text = Text(f"{self._title}  found; minimising…", no_wrap=True, overflow="ellipsis")
            self._live.update(text, refresh=True)

    def _told(self) -> str:
        seen = self.statistics
        return (
            f"{self._title}  {seen.plans:,} plans  {rate(seen):,.0f}/s  "
            f"faults fired {sum(seen.fired.values()):,}  findings {self._findings}"
        )


class RowsProgress(_Drawn):
    """Use as a context around a matrix; `add` after each row, `draw` in between."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._statuses: Counter[str] = Counter()
        self._started = now()

    def add(self, row: Row) -> None:
        """One more row is there."""
        self._statuses[row.status] += 1
        self.draw()

    def _told(self) -> str:
        seen = self._statuses
        return (
            f"matrix  {sum(seen.values())} of {self._total} rows  {now() - self._started:.0f} s  "
            f"survivors {seen['survived']}  false alarms {seen['false_alarm']}"
        )
