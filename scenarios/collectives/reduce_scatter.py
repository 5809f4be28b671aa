"""Rung 14: reduce-scatter by pull, for sizes that the world size does not divide."""

from harness import Scenario
from systems.collectives import reduce_scatter

scenario = Scenario(
    name="collectives.reduce_scatter",
    host=reduce_scatter.host,
    reference=reduce_scatter.reference,
    params=reduce_scatter.Uneven,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle",
        "duplicated_notify": "integrity/stale_value|integrity/wrong_value",
        "misaligned_base": "exceptions/misaligned|integrity/guard_overwritten|deadlock/missing_notify",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/wrong_value",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "integrity/unwritten_memory|deadlock/cycle|integrity/wrong_value|integrity/stale_value|"
            "deadlock/missing_notify"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify|deadlock/wrong_cell",
        "wrong_notify_op": "deadlock/missing_notify|deadlock/cycle",
        "wrong_peer": (
            "deadlock/missing_notify|integrity/wrong_value|deadlock/cycle|"
            "integrity/unwritten_memory"
        ),
        "wrong_shape": "exceptions/runtime_error|integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 14: reduce-scatter by pull, for sizes that the world size does not divide.",
)
