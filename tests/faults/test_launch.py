"""Variables of one rank that the launcher gets wrong: the fault fires, and the world ends in an error."""

import pytest

from faults.launch import WrongRankVariable, WrongWorldSizeVariable
from harness.frontends.torch_distributed.script import script_scenario
from harness.plan import Plan
from harness.run import run

TEXT = b"import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n"


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("fault", [WrongRankVariable, WrongWorldSizeVariable])
def test_a_wrong_variable_ends_in_an_error(fault, rank):
    found = script_scenario("program.py", TEXT)
    plan = Plan(scenario=found.name, params=found.params(), ranks=3)
    assert run(plan, scenario=found).findings == ()
    faulty = Plan(
        scenario=found.name, params=found.params(), ranks=3, faults=(fault(rank=rank, nth=0),)
    )
    outcome = run(faulty, scenario=found)
    assert outcome.run.fired == [1]
    assert outcome.findings[0].name == "exceptions/wrong_world"
