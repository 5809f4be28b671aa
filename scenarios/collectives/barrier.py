"""Rung 4: a reusable barrier from notify and wait, with rows put to all ranks."""

from harness import Scenario
from systems.collectives import barrier
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.barrier",
    host=barrier.host,
    reference=barrier.reference,
    params=Rounds,
    ranks=(1, 8),
    device_ids=lambda size: range(4, 4 + size),  # cards need be neither 0-based nor ranks
    bug_faults={},  # fault name -> finding expected
    doc="Rung 4: a reusable barrier from notify and wait, with rows put to all ranks.",
)
