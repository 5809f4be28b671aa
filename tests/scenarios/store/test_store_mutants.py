"""Each mutant of the store is found as it declares, and its twin is silent under the same plan."""

import msgspec
import pytest

from harness import registry, run
from harness.hunt import Order, hunt
from harness.trial import Declared

ROOT_SEEDS = (0, 1, 2)
PLANS_MAX = 100
STORES = [
    one for name, one in registry.scenarios().items() if name.startswith("store.") and one.mutants
]
MUTANTS = [(scenario, mutant) for scenario in STORES for mutant in scenario.mutants.values()]
mutants = pytest.mark.parametrize(
    ("scenario", "mutant"), MUTANTS, ids=[f"{s.name}-{m.name}" for s, m in MUTANTS]
)


@mutants
def test_a_hunt_finds_it_and_its_twin_is_silent(scenario, mutant):
    """In the world that it declares, with the first root seed that the matrix hunts with and needs."""
    world = (mutant.ranks, mutant.ranks)
    declared = Declared(names=tuple(mutant.expects.split("|")))
    for root in ROOT_SEEDS:
        order = Order(
            scenario, root, bug=mutant.name, ranks=world, plans_max=PLANS_MAX, until=declared
        )
        found = hunt(order)
        if found.outcome is not None:
            break
    assert found.finding is not None, f"nothing in {PLANS_MAX} plans of {len(ROOT_SEEDS)} root seeds"
    plan = found.outcome.plan
    again = run(plan)
    assert found.finding.identity in [one.identity for one in again.findings]
    assert run(msgspec.structs.replace(plan, bug=None)).findings == ()


@mutants
def test_the_docstring_names_finding_and_world(scenario, mutant):
    text = " ".join(mutant.doc.split())
    assert f"Finding: {mutant.expects}" in text
    assert f"Smallest world: {mutant.ranks}" in text


@pytest.mark.parametrize("scenario", STORES, ids=[one.name for one in STORES])
def test_planting_leaves_the_twin_as_it_was(scenario):
    size = min(2, scenario.ranks[1])
    world = (size, size)
    plan = Order(scenario, 0, ranks=world, plans_max=1)
    before = hunt(plan).statistics.identities
    for mutant in scenario.mutants.values():
        with mutant.planted():
            pass
        hunt(Order(scenario, 0, bug=mutant.name, ranks=world, plans_max=1))
    assert hunt(plan).statistics.identities == before


def test_every_scenario_of_the_store_has_mutants():
    assert {one.name for one in STORES if "story" not in one.name} == {
        "store.round_trip", "store.concurrent_clients", "store.shards", "store.restart",
        "store.eviction", "store.prefix_reuse", "store.crash", "store.watching",
    }
    assert len(MUTANTS) >= 24
