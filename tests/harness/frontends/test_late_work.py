"""Handles of calls that were dropped, held back, or whose result is changed."""

import pytest
import torch
from torch.distributed import Work
from torch.futures import Future

from harness.frontends.torch_distributed import late_work
from harness.frontends.torch_distributed.late_work import LateWork

OUTPUTS = [torch.ones(2)]


class Real(Work):
    """A handle that completes when the test says so."""

    def __init__(self, error=None):
        super().__init__()
        self.waited, self.done, self.error = 0, False, error
        self.future = Future()

    def complete(self):
        self.done = True
        if self.error is None:
            self.future.set_result(["native"])
        else:
            self.future.set_exception(self.error)

    def wait(self, timeout=None):
        self.waited += 1
        return True

    def is_completed(self):
        return self.done

    def is_success(self):
        return self.error is None

    def get_future(self):
        return self.future


def test_a_dropped_call_looks_complete():
    work = LateWork(lambda: None, OUTPUTS)
    assert work.is_completed()
    assert work.wait()
    assert work.result() == OUTPUTS
    assert work.get_future().wait() == OUTPUTS


def test_a_held_call_goes_out_once_when_it_is_waited_for():
    real, issued = Real(), []
    work = LateWork(lambda: issued.append(1) or real, OUTPUTS)
    assert issued == []
    assert work.wait()
    work.go_out()
    assert issued == [1]
    assert real.waited == 1


def test_a_changed_result_is_changed_once_and_not_before_it_is_there():
    real, changes = Real(), []
    work = LateWork(lambda: real, OUTPUTS, lambda: changes.append(1))
    assert not work.is_completed()
    assert changes == []
    real.complete()
    assert work.is_completed()
    work.wait()
    assert changes == [1]


def test_the_future_of_a_held_call_follows_the_real_one():
    real, changes = Real(), []
    work = LateWork(lambda: real, OUTPUTS, lambda: changes.append(1))
    future = work.get_future()
    work.go_out()
    assert not future.done()
    real.complete()
    assert future.wait() == OUTPUTS
    assert changes == [1]


def test_an_error_reaches_the_future_and_nothing_is_changed():
    real, changes = Real(ValueError("gone")), []
    work = LateWork(lambda: real, OUTPUTS, lambda: changes.append(1))
    work.go_out()
    future = work.get_future()
    real.complete()
    with pytest.raises(ValueError, match="gone"):
        future.wait()
    assert changes == []


def test_a_caller_that_only_waits_for_the_future_is_not_left_waiting(monkeypatch):
    monkeypatch.setattr(late_work, "HELD_SECONDS", 0.01)
    real = Real()
    real.complete()
    assert LateWork(lambda: real, OUTPUTS).get_future().wait() == OUTPUTS
