"""Scripts written for GPUs, simulated: the correct ones pass and come to what they come to on the CPU."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from harness.frontends.torch_distributed.script import script_scenario
from harness.hunt import Order, hunt
from harness.plan import Plan
from harness.run import run

HERE = Path(__file__).parent
TO_FIND = 5  # plans, the default run included
PLANS = 3
WHOLE = 100  # by night

# torch's own warnings of names it deprecates in one version or another
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(HERE), *sys.path])
    planted = importlib.import_module("planted")
CORRECT = planted.programs_in(HERE / "cuda_programs" / "correct")
DEFECTIVE = planted.programs_in(HERE / "cuda_programs" / "defective")
# How an engineer makes a script run without GPUs.
ON_CPU = (
    (r"torch\.cuda\.(set_device|synchronize|empty_cache|manual_seed_all)\(.*\)$", "pass"),
    (r"\[torch\.cuda\.current_device\(\)\]", "None"),
    (r", device_id=torch\.device\(.*?\)\)", ")"),
    (r"torch\.device\(\"cuda\", .*\)$", 'torch.device("cpu")'),
    (r"f?\"cuda(:\{[^}]*\}|:\d)?\"", '"cpu"'),
    (r"storage\.cuda\(rank\)", "storage.cpu()"),
    (r"\.cuda\([^()]*\)", '.to("cpu")'),
    (r"device_ids=\[[^]]*\]", "device_ids=None"),
    (r"output_device=\w+", "output_device=None"),
    (r"\"nccl\"", '"gloo"'),
    (r"\.to\(rank\)", '.to("cpu")'),
    (r"num_workers=\d", "num_workers=0"),
    (r"persistent_workers=True,?", ""),
    (r"prefetch_factor=2, ", ""),
    (r"pin_memory=True", "pin_memory=False"),
    (r"\.pin_memory\(\)", ""),
)


def named(programs):
    return [pytest.param(program, id=program.name) for program in programs]


def scenario_of(program, text, *, cuda=False):
    return script_scenario(program.path.name, text.encode(), cuda=cuda)


def hunted(program, text, plans, ranks, *, cuda=False):
    order = Order(scenario_of(program, text, cuda=cuda), 7, ranks=(ranks, ranks), plans_max=plans)
    return hunt(order)


def once(program, text, *, cuda=False):
    scenario = scenario_of(program, text, cuda=cuda)
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=program.ranks[0])
    return run(plan, scenario=scenario)


def on_cpu(text):
    for pattern, other in ON_CPU:
        text = re.sub(pattern, other, text, flags=re.MULTILINE)
    return text


@pytest.mark.parametrize("program", named(CORRECT))
def test_correct_programs_pass(program):
    result = hunted(program, program.text, PLANS, program.ranks[-1])
    assert result.finding is None, str(result.finding)
    assert result.statistics.plans == PLANS


@pytest.mark.parametrize("program", named(CORRECT))
def test_they_pass_where_cuda_is_said_to_be_there(program):
    outcome = once(program, program.text, cuda=True)
    assert outcome.findings == (), str(outcome.findings[0])


@pytest.mark.parametrize(
    "program", named([one for one in CORRECT if "# no CPU form" not in one.text])
)
def test_they_come_to_what_they_come_to_on_the_cpu(program):
    text = on_cpu(program.text)
    assert not re.search(r"\"cuda|cuda\(|nccl\"\)", text), "the CPU form still asks for CUDA"
    here, there = once(program, program.text), once(program, text)
    assert there.findings == (), str(there.findings[0])
    assert here.run.printed == there.run.printed
    assert any(here.run.printed)


@pytest.mark.parametrize("program", named(DEFECTIVE))
def test_every_planted_defect_is_found(program):
    for ranks in (program.ranks[0], program.ranks[-1]):
        result = hunted(program, program.text, TO_FIND, ranks)
        assert result.finding is not None, f"not found at {ranks} ranks"
        assert result.finding.kind in program.expects, (ranks, str(result.finding))


@pytest.mark.parametrize("program", named(DEFECTIVE))
def test_no_cured_one_is_accused(program):
    result = hunted(program, program.cured, PLANS, program.ranks[-1])
    assert result.finding is None, str(result.finding)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cuda", [False, True], ids=["unsaid", "said"])
@pytest.mark.parametrize("program", named([*CORRECT, *DEFECTIVE]))
def test_nor_is_any_in_many_plans(program, cuda):
    result = hunted(program, program.cured, WHOLE, program.ranks[-1], cuda=cuda)
    assert result.finding is None, str(result.finding)
