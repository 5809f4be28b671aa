"""Rung 15: all-to-all, out of one window into another."""

from harness import Scenario
from systems.collectives import alltoall
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.alltoall",
    host=alltoall.host,
    reference=alltoall.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle",
        "dropped_quiet": "integrity/unwritten_memory|integrity/stale_value",
        "duplicated_notify": "integrity/stale_value|integrity/wrong_value",
        "misaligned_base": "exceptions/misaligned|integrity/guard_overwritten|deadlock/missing_notify",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/wrong_value",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "integrity/unwritten_memory|deadlock/missing_notify|integrity/wrong_value|"
            "integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds|exceptions/index_error",
        "wrong_cell": "deadlock/cycle|deadlock/wrong_cell",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": (
            "integrity/wrong_value|integrity/unwritten_memory|deadlock/missing_notify|"
            "deadlock/cycle"
        ),
        "wrong_shape": "integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 15: all-to-all, out of one window into another.",
)
