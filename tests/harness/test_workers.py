"""Calls over processes: every result once, deaths and exceptions told, nothing left behind."""

import multiprocessing
import os
import signal

import pytest

from harness.errors import EngineError
from harness.workers import Died, spread


def test_every_call_gives_its_result_once():
    assert sorted(spread(pow, [(2, n) for n in range(9)], 2)) == [(n, 2**n) for n in range(9)]
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_told_and_replaced():
    calls = [(7,), (0,)]
    assert sorted(spread(os._exit, calls, 1)) == [(0, Died(7)), (1, Died(0))]
    (only,) = spread(signal.raise_signal, [(signal.SIGKILL,)], 3)
    assert str(only[1]) == "the process was killed by SIGKILL"
    assert str(Died(9)) == "the process ended with exit code 9"
    assert str(Died(-64000)) == "the process was killed by signal 64000"


def test_an_exception_ends_it_with_the_workers_traceback():
    with pytest.raises(EngineError, match="ZeroDivisionError"):
        list(spread(divmod, [(1, 0)], 1))
    assert multiprocessing.active_children() == []


def test_what_on_wait_raises_ends_everything():
    def on_wait():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(spread(signal.sigwait, [({signal.SIGUSR1},)], 1, on_wait))
    assert multiprocessing.active_children() == []


def test_workers_ignore_ctrl_c():
    assert list(spread(signal.getsignal, [(signal.SIGINT,)], 1)) == [(0, signal.SIG_IGN)]
    assert list(spread(signal.raise_signal, [(signal.SIGINT,)], 1)) == [(0, None)]
