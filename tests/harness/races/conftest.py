"""`go`: run a rank program on every rank. `small_worlds`: random programs and all their schedules."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from harness.fabric.execute import Job, execute


@pytest.fixture
def go():
    def run(program, size, *schedule):
        def host(world):
            for rank in range(size):
                world.dispatch(program, device=rank)

        record = execute(Job(ranks=size, host=host, schedule=schedule))
        assert record.failures == []
        return record

    return run


@pytest.fixture(scope="session")
def small_worlds():
    spec = importlib.util.spec_from_file_location(
        "small_worlds", Path(__file__).with_name("small_worlds.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
