"""Rows at offsets beyond 2 ** 31."""

from harness import Scenario
from systems.collectives import far_offsets

scenario = Scenario(
    name="collectives.far_offsets",
    host=far_offsets.host,
    reference=far_offsets.reference,
    params=far_offsets.Extended,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory",
        "dropped_notify": "deadlock/missing_notify",
        "dropped_quiet": "integrity/stale_value|races/unordered_read",
        "duplicated_notify": "deadlock/signal_leak|integrity/stale_value|deadlock/missing_notify",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "integrity/unwritten_memory",
        "window_counts_ranks": "exceptions/index_error",
        "wrong_cell": "deadlock/missing_notify",
        "wrong_notify_op": "deadlock/cycle|deadlock/missing_notify",
        "wrong_peer": "deadlock/missing_notify",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="Rows at offsets beyond 2 ** 31.",
)
