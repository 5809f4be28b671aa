"""Rung 16: broadcast, all-reduce and all-gather in one program."""

from harness import Scenario
from systems.collectives import together
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.together",
    host=together.host,
    reference=together.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory|integrity/stale_value",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle|integrity/unwritten_memory",
        "dropped_quiet": "races/unordered_read|integrity/wrong_value|integrity/stale_value",
        "duplicated_notify": (
            "deadlock/overdrawn|integrity/wrong_value|deadlock/cycle|integrity/stale_value"
        ),
        "misaligned_base": (
            "exceptions/misaligned|integrity/guard_overwritten|integrity/wrong_value|"
            "integrity/unwritten_memory"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/unwritten_memory",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "integrity/unwritten_memory|deadlock/cycle|integrity/wrong_value",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify|deadlock/wrong_cell|deadlock/cycle",
        "wrong_notify_op": "deadlock/missing_notify|deadlock/cycle",
        "wrong_peer": (
            "deadlock/missing_notify|deadlock/cycle|integrity/wrong_value|"
            "integrity/unwritten_memory"
        ),
        "wrong_shape": "exceptions/runtime_error|integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 16: broadcast, all-reduce and all-gather in one program.",
)
