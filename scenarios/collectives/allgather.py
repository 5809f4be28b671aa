"""Rung 13: all-gather by push, with credits that are given back."""

from harness import Scenario
from systems.collectives import allgather
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.allgather",
    host=allgather.host,
    reference=allgather.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory|integrity/stale_value",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle",
        "dropped_quiet": "races/unordered_read|integrity/stale_value",
        "duplicated_notify": (
            "deadlock/overdrawn|deadlock/cycle|integrity/stale_value|deadlock/missing_notify|"
            "integrity/unwritten_memory|integrity/wrong_value|deadlock/signal_leak"
        ),
        "misaligned_base": (
            "exceptions/misaligned|integrity/guard_overwritten|integrity/unwritten_memory|"
            "deadlock/cycle"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/wrong_value|integrity/unwritten_memory",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "integrity/unwritten_memory|deadlock/cycle|integrity/wrong_value|integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify|deadlock/cycle",
        "wrong_notify_op": "deadlock/cycle|deadlock/missing_notify",
        "wrong_peer": (
            "deadlock/missing_notify|deadlock/cycle|integrity/unwritten_memory|"
            "integrity/wrong_value"
        ),
        "wrong_shape": "integrity/unwritten_memory|integrity/wrong_value",
    },
    doc="Rung 13: all-gather by push, with credits that are given back.",
)
