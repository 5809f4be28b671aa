"""Rung 12: a broadcast in place from any root."""

from harness import Scenario
from systems.collectives import broadcast

scenario = Scenario(
    name="collectives.broadcast",
    host=broadcast.host,
    reference=broadcast.reference,
    params=broadcast.Broadcasts,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle|deadlock/wrong_cell",
        "duplicated_notify": (
            "integrity/stale_value|lifetime/overwritten_while_read|integrity/wrong_value"
        ),
        "misaligned_base": (
            "exceptions/misaligned|integrity/guard_overwritten|deadlock/missing_notify|"
            "exceptions/out_of_bounds|integrity/wrong_value|deadlock/cycle"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle|deadlock/missing_notify|deadlock/wrong_cell",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/wrong_value",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "deadlock/missing_notify|integrity/unwritten_memory|"
            "lifetime/overwritten_while_read|deadlock/cycle|integrity/wrong_value|"
            "integrity/stale_value|deadlock/wrong_cell"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify|deadlock/wrong_cell|deadlock/cycle",
        "wrong_notify_op": "deadlock/missing_notify|deadlock/wrong_cell",
        "wrong_peer": (
            "deadlock/missing_notify|deadlock/cycle|integrity/stale_value|"
            "integrity/wrong_value|integrity/unwritten_memory|lifetime/overwritten_while_read"
        ),
        "wrong_shape": "integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 12: a broadcast in place from any root.",
)
