"""The correct programs behind the interposed group, on real gloo: they notice nothing."""

import importlib
import sys
from pathlib import Path

import pytest

from harness.fabric.real_ranks import run_real
from harness.supervise import Limits

HERE = Path(__file__).parent
LIMITS = Limits(operation=20, plan=100)
HEAVY = ("torch._dynamo", "torch.distributed.fsdp")  # DDP's and FSDP's imports, once for all
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(HERE), *sys.path])
    CORRECT = importlib.import_module("gloo_worlds").programs("correct")


@pytest.mark.parametrize("program", CORRECT, ids=lambda one: one.name)
def test_a_correct_program_is_right(program):
    outcome = run_real(str(program.path), ranks=program.ranks[-1], limits=LIMITS, preload=HEAVY)
    assert outcome.first is None, outcome
    assert all(one.calls for one in outcome.ranks)
    assert outcome.findings() == ()
