"""How the tests of the torch.distributed front end run a script."""

from __future__ import annotations

import textwrap

import pytest

from harness.frontends.torch_distributed.script import script_scenario
from harness.plan import Plan
from harness.run import run

BEGIN = """
import torch
import torch.distributed as dist
from datetime import timedelta

"""
INIT = BEGIN + """dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
"""


class Scripts:
    """Writes scripts into a folder and runs them."""

    def __init__(self, folder):
        self.folder = folder

    def file(self, name, text):
        (self.folder / name).write_text(textwrap.dedent(text))

    def scenario(self, text, argv=(), *, begin=INIT, **how):
        path = self.folder / "program.py"
        path.write_text(begin + textwrap.dedent(text))
        return script_scenario(str(path), path.read_bytes(), argv, **how)

    def __call__(self, text, ranks=4, *schedule, argv=(), begin=INIT, faults=(), **how):
        """The outcome of a program; it begins with the imports and init_process_group."""
        found = self.scenario(text, argv, begin=begin, **how)
        plan = Plan(
            scenario=found.name, params=found.params(), ranks=ranks, schedule=schedule, faults=faults
        )
        return run(plan, scenario=found)


@pytest.fixture
def script(tmp_path):
    """`script(text, ranks, *schedule)` runs a torch.distributed program; its Outcome."""
    return Scripts(tmp_path)


@pytest.fixture
def begin():
    """The imports alone, for programs that make their own group."""
    return BEGIN
