"""Which variables hold a tensor."""

from __future__ import annotations

import sys

import torch

from harness.frontends.torch_distributed.names import names_of


def mine(code):
    return code.co_filename == __file__


def asked(tensor):
    return names_of(tensor, sys._getframe(1), mine)


def test_variables_of_the_frame_and_of_its_callers():
    x = torch.ones(1)
    y = x

    def inner(t):
        other = torch.ones(1)
        assert asked(other) == ("other",)
        return asked(t)

    assert inner(x)[:1] == ("t",)
    assert set(inner(x)) == {"t", "x", "y"}
    assert y is x


def test_one_level_into_what_variables_hold():
    state = {"w": torch.ones(1), 3: torch.ones(1)}
    rows = [torch.ones(1)]
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    model[0].weight.grad = torch.ones(1, 1)
    assert asked(state["w"]) == ("state['w']",)
    assert asked(state[3]) == ()
    assert asked(rows[0]) == ()
    assert asked(model[0].bias) == ("model.0.bias",)
    assert asked(model[0].weight.grad) == ("model.0.weight.grad",)


class Holder:
    def __init__(self):
        self.total = torch.ones(1)

    def name(self):
        return asked(self.total)


def test_attributes_of_self():
    assert Holder().name() == ("self.total",)


def test_frames_that_are_not_the_users_are_passed_over():
    x = torch.ones(1)
    assert names_of(x, sys._getframe(), lambda code: False) == ()
    assert names_of(x, None, mine) == ()
