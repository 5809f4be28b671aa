"""Three stages in turn, each cleaned for a later call."""

from harness import Scenario
from systems.collectives import stages

scenario = Scenario(
    name="collectives.stages",
    host=stages.host,
    reference=stages.reference,
    params=stages.Calls,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "deadlock/overwritten_signal",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "deadlock/overwritten_signal",
        "window_counts_ranks": "exceptions/index_error",
        "wrong_cell": "deadlock/cycle",
        "wrong_notify_op": "deadlock/overwritten_signal",
        "wrong_peer": "deadlock/overwritten_signal",
        "wrong_shape": "integrity/unwritten_memory",
    },
    doc="Three stages in turn, each cleaned for a later call.",
)
