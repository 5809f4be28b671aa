"""The error loop: a fault at the first operation that it can hit, at the second, until there is no more.

For one parameter set, the scenario's defaults where it has them. Up to its operation a run is the default
run, so the operations that the default run offers are all there are. A fault's choices (an errno) are
tried in turn, its numbers keep their defaults; a world with several ranks has its turn rank by rank. Not
tried: two faults at once, other schedules (the hunt's own portfolio does that).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from msgspec import inspect as types

from harness.plan import Fault, Plan
from harness.scenario import Scenario
from harness.strategy import all_fault_counts


def each_place(plan: Plan, scenario: Scenario, kinds: Iterable[type[Fault]]) -> Iterator[Fault]:
    """Every fault of these kinds that fires in `plan`: each choice, rank and operation."""
    kinds = list(kinds)
    counts = all_fault_counts(plan, scenario, kinds)
    for kind in kinds:
        for chosen in _choices(kind):
            for rank, count in enumerate(counts[kind]):
                for nth in range(count):
                    yield kind(rank=rank, nth=nth, **chosen)


def _choices(kind: type[Fault]) -> Iterator[dict[str, object]]:
    """The combinations of a fault's literal fields."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    fields = {
        field.name: field.type.values for field in info.fields
        if isinstance(field.type, types.LiteralType)
    }
    for values in itertools.product(*fields.values()):
        yield dict(zip(fields, values, strict=True))
