"""Rung 3: rows published in a window, read by all ranks behind a barrier."""

from harness import Scenario
from systems.collectives import window_buffer
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.window_buffer",
    host=window_buffer.host,
    reference=window_buffer.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={},  # fault name -> finding expected
    doc="Rung 3: rows published in a window, read by all ranks behind a barrier.",
)
