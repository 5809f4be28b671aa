"""Ctrl-C that cannot be mistaken for a finding.

A KeyboardInterrupt raised inside a rank would look like a rank that raised. So the first Ctrl-C
only sets a flag, looked at between plans; the second one raises, and then nothing of the run at
hand counts. Where GRACE_SECONDS after the first one nobody has looked (a rank loops for ever), that is as
good as the second. It is timed by SIGALRM, whose handler and timer are put back afterwards.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
from types import FrameType
from typing import Any

from harness.host import World
from harness.scenario import Scenario

GRACE_SECONDS = 1.5
_signal = signal.signal  # a rank whose turn it is has one of its own


class Interrupted(BaseException):
    """The user wants no further plan. No Exception: nobody may take it for the program's own."""


class Interrupt:
    """Use as a context; call `check` between plans."""

    def __init__(self) -> None:
        self.count = 0
        self._old: Any = None
        self._alarm: tuple[Any, tuple[float, float]] | None = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._old = signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
        self._looked()

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
        handler = _signal(signal.SIGALRM, self._caught)
        self._alarm = handler, signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    def _looked(self) -> None:
        if self._alarm is not None:
            (handler, timer), self._alarm = self._alarm, None
            signal.setitimer(signal.ITIMER_REAL, *timer)
            _signal(signal.SIGALRM, handler)

    def check(self) -> None:
        """Raise Interrupted after a Ctrl-C."""
        if self.count:
            self._looked()
            raise Interrupted

    def stopping(self, scenario: Scenario) -> Scenario:
        """The same scenario, whose host program looks at the flag before each run."""

        def host(world: World, params: Any) -> Any:
            self.check()
            return scenario.host(world, params)

        return dataclasses.replace(scenario, host=host)
