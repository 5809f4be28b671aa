"""All-gathers in two groups that overlap."""

from harness import Scenario
from systems.collectives import groups
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.groups",
    host=groups.host,
    reference=groups.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "integrity/unwritten_memory",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/missing_notify",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "integrity/unwritten_memory",
        "window_counts_ranks": "exceptions/index_error",
        "wrong_cell": "deadlock/missing_notify",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": "deadlock/missing_notify",
        "wrong_shape": "integrity/unwritten_memory",
    },
    doc="All-gathers in two groups that overlap.",
)
