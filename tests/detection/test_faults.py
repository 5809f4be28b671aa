"""Every bug fault that a scenario declares is found by a hunt, as declared; equivalent ones never are."""

import pytest

from harness import registry
from harness.hunt import Order, hunt

PLANS_MAX = 60
EQUIVALENT_PLANS = 2_000  # every night
DAY_PLANS = 30
STORE_PLANS = 20  # a store's plan takes as long as ten of the others
DECLARED = [
    (scenario.name, fault, expected)
    for scenario in registry.scenarios().values()
    for fault, expected in scenario.bug_faults.items()
]


declared = pytest.mark.parametrize(
    ("name", "fault", "expected"),
    [row for row in DECLARED if not row[2].startswith("equivalent")],
    ids=lambda value: value.split("|")[0],
)


@declared
def test_a_hunt_finds_what_is_declared(name, fault, expected):
    finds(name, fault, expected, 0)


@pytest.mark.nightly
@declared
def test_a_hunt_finds_it_from_other_root_seeds(name, fault, expected):
    for root in (1, 2):
        finds(name, fault, expected, root)


def finds(name, fault, expected, root):
    found = hunt(Order(registry.find(name), root, faults=(fault,), plans_max=PLANS_MAX))
    assert found.finding is not None, f"root seed {root}: nothing in {PLANS_MAX} plans"
    assert found.finding.name in expected.split("|")
    assert found.statistics.fired[fault] > 0


equivalents = pytest.mark.parametrize(
    ("name", "fault"), [row[:2] for row in DECLARED if row[2].startswith("equivalent: ")]
)


@equivalents
def test_an_equivalent_fault_fires_and_changes_nothing(name, fault):
    changes_nothing(name, fault, STORE_PLANS if name.startswith("store.") else DAY_PLANS)


@pytest.mark.nightly
@equivalents
def test_an_equivalent_fault_changes_nothing_in_two_thousand_plans(name, fault):
    changes_nothing(name, fault, EQUIVALENT_PLANS)


def changes_nothing(name, fault, plans_max):
    found = hunt(Order(registry.find(name), 1, faults=(fault,), plans_max=plans_max))
    assert found.finding is None
    assert found.statistics.fired[fault] > plans_max // 2


def test_every_bug_fault_is_declared_somewhere():
    """A fault that no scenario declares is one whose detection nothing shows.

    A launcher's faults hit users' scripts, which declare nothing: test_launch.py shows theirs.
    """
    bugs = {
        name for name, fault in registry.faults().items()
        if fault.family == "bug" and fault.__module__ != "faults.launch"
    }
    assert bugs <= {fault for _, fault, _ in DECLARED}
