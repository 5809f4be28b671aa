"""A dissemination barrier of teams of any size."""

from harness import Scenario
from systems.collectives import dissemination
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.dissemination",
    host=dissemination.host,
    reference=dissemination.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "integrity/wrong_value",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "integrity/unwritten_memory",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": "deadlock/missing_notify",
        "wrong_shape": "integrity/unwritten_memory",
    },
    doc="A dissemination barrier of teams of any size.",
)
