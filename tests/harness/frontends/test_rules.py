"""The rules that are checked where their facts are: each broken once, and its twin kept."""

from __future__ import annotations

import pytest

from harness.errors import PldRuleError
from harness.frontends.pypto import rules

WORLD = 4


def broken(check, *args):
    with pytest.raises(PldRuleError) as caught:
        check(*args)
    return caught.value.rule


@pytest.mark.parametrize("has", [WORLD, 64, 4 * 16])
def test_a_count_where_bytes_are_due(has):
    shape = [WORLD, 16]
    assert broken(rules.check_window, "buf", has, shape, 4, WORLD) == "byte_size"
    rules.check_window("buf", 4 * 64, shape, 4, WORLD)


def test_a_window_of_more_bytes_than_its_buffer():
    assert broken(rules.check_window, "buf", 4096, [1025], 4, WORLD) == "window_larger_than_buffer"
    rules.check_window("buf", 4096, [1024], 4, WORLD)


def test_a_world_size_that_is_fixed():
    assert broken(rules.check_extents, "x", [2, 8], [WORLD, 8], WORLD) == "world_size_not_dynamic"
    assert broken(rules.check_extents, "x", [WORLD, 8], [WORLD, 9], WORLD) == "wrong_shape"
    assert broken(rules.check_extents, "x", [8], [8, 1], WORLD) == "wrong_shape"
    rules.check_extents("x", [object(), 8], [WORLD, 8], WORLD)


def test_a_tensor_after_a_scalar():
    kinds = [("x", True), ("rank", False), ("out", True)]
    assert broken(rules.check_tensors_first, "step", kinds) == "tensor_after_scalar"
    rules.check_tensors_first("step", sorted(kinds, key=lambda kind: not kind[1]))


def test_signals_over_data():
    buffer, other = object(), object()
    windows = [("data", buffer, "FP32"), ("signal", buffer, "INT32")]
    assert broken(rules.check_views, "step", windows) == "shared_buffer"
    rules.check_views("step", [("data", buffer, "FP32"), ("signal", other, "INT32")])
    rules.check_views("step", [("cells", buffer, "INT32"), ("rows", buffer, "INT32")])


def test_a_loop_that_leaves_cards_out():
    assert broken(rules.check_dispatched, [0, 1], [4, 5, 8, 9]) == "dispatch_loop"
    rules.check_dispatched([0, 1, 1, 0], [4, 5])
    rules.check_dispatched([], [4, 5])  # a program that only works on the host


def test_macros_set_as_environment():
    text = (
        'import os\n# os.environ["SIMPLER_DFX"] = "1"\nos.environ["SIMPLER_DFX"] = "1"\n'
        'monkeypatch.setenv("SIMPLER_HOST_STRACE", "1")\n'
        'os.environ["SIMPLER_DEVICE_STRACE_ENABLE"] = "0"\n'
    )
    assert rules.macros_in(text) == [(3, "SIMPLER_DFX"), (4, "SIMPLER_HOST_STRACE")]


def test_every_rule_has_a_cause_and_a_remedy():
    for rule in rules.RULES:
        cause, remedy = rules.PLD[f"pld/{rule}"]
        assert cause
        assert remedy
    with pytest.raises(AssertionError):
        rules.broken("no_such_rule", "")
