"""Rung 6: neighbours exchange rows by put, put_signal and get."""

from harness import Scenario
from systems.collectives import put_get
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.put_get",
    host=put_get.host,
    reference=put_get.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={},  # fault name -> finding expected
    doc="Rung 6: neighbours exchange rows by put, put_signal and get.",
)
