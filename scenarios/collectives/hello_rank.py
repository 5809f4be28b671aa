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
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "offset_off_by_one": "integrity/wrong_value|exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="Rung 1: every rank adds its number to its row.",
)
