"""Compute and copy as two lanes of a rank, ordered by events."""

from harness import Scenario
from systems.collectives import streams
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.streams",
    host=streams.host,
    reference=streams.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dropped_notify": "deadlock/missing_notify",
        "dropped_quiet": "integrity/unwritten_memory|integrity/wrong_value",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "threshold_off_by_one": (
            "integrity/unwritten_memory|integrity/wrong_value|deadlock/missing_notify|"
            "lifetime/use_after_free"
        ),
    },
    doc="Compute and copy as two lanes of a rank, ordered by events.",
)
