"""Ctrl-C in a hunt: the first one waits for the plan at hand, but not for ever."""

import select
import signal

import pytest

from harness.cli import interrupt
from harness.cli.interrupt import Interrupt, Interrupted


def test_where_nobody_looks_the_first_one_raises_after_a_while(monkeypatch):
    monkeypatch.setattr(interrupt, "GRACE_SECONDS", 0.01)
    before = signal.getsignal(signal.SIGALRM)
    with Interrupt():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            select.select([], [], [], 30)
    assert signal.getsignal(signal.SIGALRM) == before


def test_who_looks_ends_it_and_the_timer_is_as_it_was():
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    with Interrupt() as pressed:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted):
            pressed.check()
        after = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
        assert [after[0], after[1][0] > 0] == [before[0], before[1][0] > 0]


def test_a_second_one_raises_at_once():
    with Interrupt():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
