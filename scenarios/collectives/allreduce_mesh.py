"""Rung 8: all-reduce in place over a full mesh."""

from harness import Scenario
from systems.collectives import allreduce_mesh
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.allreduce_mesh",
    host=allreduce_mesh.host,
    reference=allreduce_mesh.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={},  # fault name -> finding expected
    doc="Rung 8: all-reduce in place over a full mesh.",
)
