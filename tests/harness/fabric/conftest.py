"""How the tests of the simulated fabric run a program."""

from __future__ import annotations

import pytest

from harness.fabric import carrier
from harness.fabric.execute import Job, execute
from harness.record import Run


def run_program(program, ranks=2, *schedule, args=(), **job) -> Run:
    """The record of `program` dispatched once on every rank."""

    def host(world):
        for index in range(world.size):
            world.dispatch(program, *args, device=index)

    return execute(Job(ranks, host, schedule=schedule, **job))


@pytest.fixture
def go():
    """`go(program, ranks, *schedule, **job)` runs a program and returns its Run."""
    return run_program


@pytest.fixture
def clock(monkeypatch):
    """What the watchdog takes for the time: it passes only where a program says so."""

    class Clock:
        seconds = 0.0

        def __call__(self):
            return self.seconds

    found = Clock()
    monkeypatch.setattr(carrier, "now", found)
    return found
