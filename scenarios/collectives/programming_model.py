"""Rung 2: host, device and kernel level; rows scaled tile by tile."""

from harness import Scenario
from systems.collectives import programming_model
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.programming_model",
    host=programming_model.host,
    reference=programming_model.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={},  # fault name -> finding expected
    doc="Rung 2: host, device and kernel level; rows scaled tile by tile.",
)
