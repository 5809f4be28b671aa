"""Each collective, simulated and on gloo, bit for bit as in plain torch; body: every_collective.py."""

import warnings
from pathlib import Path

import pytest

from harness import Plan, Verdict, run
from harness.fabric.real_ranks import run_real
from harness.frontends.torch_distributed.script import script_scenario
from harness.supervise import Limits

BODY = Path(__file__).with_name("every_collective.py")
KINDS = (
    "all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "broadcast", "all_gather",
    "all_gather_into_tensor", "gather", "scatter", "all_to_all", "all_to_all_single", "send",
)
ODD = "0,1,3,7,1023,4097"


def on_gloo(ranks, sizes, *kinds):
    outcome = run_real(str(BODY), [sizes, *kinds], ranks=ranks, limits=Limits(operation=60, plan=600))
    assert outcome.first is None, outcome
    return [int(one.printed) for one in outcome.ranks]


def simulated(ranks, sizes, *kinds):
    scenario = script_scenario(str(BODY), BODY.read_bytes(), (sizes, *kinds))
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=ranks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of names that torch has given up
        outcome = run(plan, scenario=scenario)
    assert outcome.verdict is Verdict.PASS, [found.message for found in outcome.findings]
    return [int(printed.splitlines()[-1]) for printed in outcome.run.printed]


@pytest.mark.parametrize("fabric", [on_gloo, simulated])
def test_every_collective_and_dtype_is_as_in_plain_torch(fabric):
    assert fabric(3, "0,3") == [644] * 3


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fabric", [on_gloo, simulated])
@pytest.mark.parametrize("ranks", range(2, 9))
def test_every_size_and_world(fabric, ranks):
    assert fabric(ranks, ODD) == [1932] * ranks


@pytest.mark.parametrize("fabric", [on_gloo, simulated])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all_single"])
def test_one_kind_at_two_ranks_with_odd_sizes(fabric, kind):
    made = fabric(2, "1,7,1023", kind)
    assert made[0] == made[1] > 30


def test_the_body_has_every_kind():
    text = BODY.read_text()
    assert all(f'"{kind}"' in text for kind in KINDS)
