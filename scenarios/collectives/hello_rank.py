"""Rung 1: every rank adds its number to its row."""

from harness import Scenario
from systems.collectives import hello_rank
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.hello_rank",
    host=hello_rank.host,
    reference=hello_rank.reference,
    params=Rounds,
    ranks=(1, 8),
    device_ids=lambda size: range(4, 4 + size),  # cards need be neither 0-based nor ranks
    bug_faults={},  # fault name -> finding expected
    doc="Rung 1: every rank adds its number to its row.",
)
