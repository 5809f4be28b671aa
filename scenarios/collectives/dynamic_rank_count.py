"""Rung 7: an all-gather whose shapes follow the world size."""

from harness import Scenario
from systems.collectives import dynamic_rank_count
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.dynamic_rank_count",
    host=dynamic_rank_count.host,
    reference=dynamic_rank_count.reference,
    params=Rounds,
    ranks=(1, 8),
    device_ids=lambda size: range(4, 4 + size),  # cards need be neither 0-based nor ranks
    bug_faults={},  # fault name -> finding expected
    doc="Rung 7: an all-gather whose shapes follow the world size.",
)
