"""The lanes of one rank in its process: one goes on at a time, and hands over at its operations.

The first lane is carried by the process's own stack, each other one by a greenlet, as in simulation
(carrier.py); so they share what the lanes of a rank may share: its windows, what it has freed, its
counts, any Python object. Generators and torch's modes go with the lane.

Not modelled: two lanes of a rank that really run at the same moment, as threads on two cores or streams
of a device do. They are interleaved between operations, by the conductor or by the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from greenlet import getcurrent, greenlet

from harness.ambient import Ambient
from harness.fabric.carrier import borrow, give_back
from harness.fabric.lanes import Lane
from harness.fabric.torch_modes import end, modes, set_modes


class RankLanes:
    """Who of a rank's lanes is carried now. body: runs a lane's program, from its start to its end."""

    def __init__(self, lanes: Sequence[Lane], ambient: Ambient, body: Callable[[Lane], None]) -> None:
        self.current = lanes[0]
        self._first = lanes[0]
        self._ambient = ambient
        self._body = body
        self._own = getcurrent()
        self._modes = modes()
        self._guards: list[Any] = []
        self._begun: list[Lane] = []  # beside the first

    def to(self, lane: Lane) -> None:
        """Hand over to `lane`, which begins if it is new; returns when this one is handed back to."""
        held = modes()
        self._ambient.leave(self.current.stream)
        if lane.state == "new":
            if held != self._modes:
                set_modes(self._modes, self._guards)
            lane.state = "running"
            lane.carrier = borrow()
            self._begun.append(lane)
            lane.carrier.job = lambda: self._run(lane)
        self._enter(lane)
        (self._own if lane is self._first else lane.carrier.greenlet).switch()
        if modes() != held:
            set_modes(held, self._guards)

    def end(self) -> None:
        """The plan is over: keep the greenlets, leave the process's torch as it was."""
        for lane in self._begun:
            give_back(lane.carrier)
        end(self._modes, self._guards)

    def _enter(self, lane: Lane) -> None:
        self.current = lane
        self._ambient.enter(lane.stream)

    def _run(self, lane: Lane) -> greenlet:
        """A lane's whole life; the process's own stack goes on after it."""
        self._body(lane)
        self._ambient.leave(lane.stream)
        self._enter(self._first)
        return self._own
