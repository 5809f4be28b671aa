"""Rung 5: a ring shift by remote_store and by remote_load."""

from harness import Scenario
from systems.collectives import remote_load_store
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.remote_load_store",
    host=remote_load_store.host,
    reference=remote_load_store.reference,
    params=Rounds,
    ranks=(1, 8),
    device_ids=lambda size: range(4, 4 + size),  # cards need be neither 0-based nor ranks
    bug_faults={},  # fault name -> finding expected
    doc="Rung 5: a ring shift by remote_store and by remote_load.",
)
