"""Live progress of a hunt: a line that redraws itself on a terminal, plain lines elsewhere.

Drawn on stderr from the hunting thread alone: a thread of its own would see the virtual clock.
"""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.ambient import now
from harness.cli.output import complain
from harness.hunt import Statistics
from harness.report.hunt_text import rate

REDRAW_SECONDS = 0.1
PLAIN_SECONDS = 15.0


class Progress:
    """Use as a context around one hunt; `update` after each plan."""

    def __init__(self, title: str, findings: int) -> None:
        self.statistics = Statistics()
        self._title = title
        self._findings = findings
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._shown = now()

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(
                self._line(), console=self._console, auto_refresh=False, transient=True
            )
            self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, statistics: Statistics) -> None:
        """What the hunt has done so far."""
        self.statistics = statistics
        since = now() - self._shown
        if self._live is not None and since >= REDRAW_SECONDS:
            self._live.update(self._line(), refresh=True)
            self._shown = now()
        elif self._live is None and since >= PLAIN_SECONDS:
            complain(self._line().plain, prefix="")
            self._shown = now()

    def minimising(self) -> None:
        """The hunt has found something, which is now made smaller."""
        if self._live is not None:
            text = Text(f"{self._title}  found; minimising…", no_wrap=True, overflow="ellipsis")
            self._live.update(text, refresh=True)

    def _line(self) -> Text:
        seen = self.statistics
        text = (
            f"{self._title}  {seen.plans:,} plans  {rate(seen):,.0f}/s  "
            f"faults fired {sum(seen.fired.values()):,}  findings {self._findings}"
        )
        return Text(text, no_wrap=True, overflow="ellipsis")
