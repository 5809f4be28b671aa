"""A core's arrays of scalars."""

from __future__ import annotations

import pytest

from harness.errors import OutOfBounds
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.scalars import DeviceInt

pl = modules()["pypto.language"]
POISON = 2146754221


def test_elements():
    held = pl.array.create(3, pl.INT32)
    assert held[1] == POISON
    held[1] = 2**31
    assert held[1] == -(2**31)
    assert type(held[1]) is DeviceInt
    assert held[DeviceInt(1)] // 2**30 == -2
    with pytest.raises(OutOfBounds, match="element 3"):
        held[3] = 0
    with pytest.raises(OutOfBounds):
        pl.array.get_element(held, -1)


def test_an_update_makes_another_array():
    held = pl.array.create(2, pl.INT32)
    held[0] = 4
    changed = pl.array.update_element(held, 0, 5)
    assert (held[0], pl.read(changed, 0)) == (4, 5)
    assert len(changed) == 2


def test_numbers_of_tasks_are_kept_as_they_are():
    held = pl.array.create(2, pl.TASK_ID)
    task = object()
    held[1] = task
    assert (held[0], held[1]) == (None, task)
