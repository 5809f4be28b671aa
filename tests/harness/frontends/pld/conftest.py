"""`called`: one host call of a pld program, in the default schedule with a look for races, or hunted."""

from __future__ import annotations

import dataclasses

import pytest

from harness.checkers.pld_rules import PldRules
from harness.frontends.pypto.calls import HostCall
from harness.hunt import hunt
from harness.plan import Plan
from harness.portfolio import Order
from harness.run import run
from harness.scenario import NoParams, Scenario


@dataclasses.dataclass
class Called:
    """A host function with the tensors it is given. expected: what it should leave, by tensor's name."""

    function: object
    args: list
    ranks: int
    expected: dict
    owner: object = None

    def scenario(self):
        def host(world, _params):
            call = HostCall(self.function, self.owner, self.args, tuple(range(self.ranks))).copied()
            call.record(world)
            return call.observed()

        return Scenario(
            name="call", host=host, ranks=(self.ranks, self.ranks), checkers=(PldRules(),),
            reference=(lambda _params, _size: self.expected) if self.expected else None,
            tolerance=1e-3,
        )

    def run(self):
        """The outcome of the default run, races looked for."""
        scenario = self.scenario()
        plan = Plan(scenario="call", params=NoParams(), ranks=self.ranks)
        return run(plan, scenario=scenario, races=True)

    def names(self):
        """The findings of the default run."""
        return [found.name for found in self.run().findings]

    def hunted(self, plans=40, seed=0):
        """The finding of a hunt, by name; empty if there is none."""
        found = hunt(Order(self.scenario(), seed, plans_max=plans)).finding
        return "" if found is None else found.name


@pytest.fixture
def called():
    def make(function, *args, ranks, **expected):
        return Called(function, list(args), ranks, {n: list(v) for n, v in expected.items()})

    return make
