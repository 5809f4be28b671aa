"""Data and flags in one scratch window, with messages of different sizes."""

from harness import Scenario
from systems.collectives import scratch

scenario = Scenario(
    name="collectives.scratch",
    host=scratch.host,
    reference=scratch.reference,
    params=scratch.Messages,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/stale_value",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": (
            "equivalent: a flag is Set, and what was put before is fenced, so twice is once"
        ),
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "deadlock/overshoot",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify",
        "wrong_notify_op": "deadlock/overshoot",
        "wrong_peer": "deadlock/missing_notify",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="Data and flags in one scratch window, with messages of different sizes.",
)
