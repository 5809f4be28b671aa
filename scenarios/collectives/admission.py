"""A loop of collectives that all ranks leave together."""

from harness import Scenario
from systems.collectives import admission
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.admission",
    host=admission.host,
    reference=admission.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "misaligned_base": "integrity/guard_overwritten",
        "missing_share_memory": "integrity/stale_private_memory",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "skipped_barrier": "integrity/wrong_value",
        "wrong_peer": "integrity/wrong_value",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="A loop of collectives that all ranks leave together.",
)
