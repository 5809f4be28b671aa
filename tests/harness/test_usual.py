"""Lines that a plan alone decides, and lines that follow a clock."""

from __future__ import annotations

from harness.usual import reconciled


def test_what_runs_of_one_plan_say_differently_is_not_compared():
    runs = [["sum 3\ntook 1 s\nend", "a"], ["sum 3\ntook 9 s\nend", "a"]]
    assert reconciled(["sum 3\ntook 2 s\nend", "a"], runs) == ["sum 3\ntook 2 s\nend", "a"]
    assert reconciled(["sum 4\ntook 2 s\nend", "b"], runs) == ["sum 3\ntook 2 s\nend", "a"]


def test_a_text_of_another_length():
    runs = [["a\nb", "x"], ["a", "x"]]
    assert reconciled(["c", "y"], runs) == ["c", "x"]
    assert reconciled(["a"], [["a\nb"]]) == ["a\nb"]
    assert reconciled(["a"], [["a\nb"], ["a\nc"]]) == ["a\nb"]


def test_one_run_is_taken_as_it_is():
    assert reconciled(["now"], [["then"]]) == ["then"]
