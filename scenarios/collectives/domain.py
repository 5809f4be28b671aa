"""Windows that each call allocates, clears and releases."""

from harness import Scenario
from systems.collectives import domain
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.domain",
    host=domain.host,
    reference=domain.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "lifetime/freed_in_flight",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "skipped_barrier": "deadlock/overwritten_signal",
        "threshold_off_by_one": "lifetime/freed_in_flight",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_notify_op": "deadlock/overwritten_signal",
        "wrong_peer": "integrity/unwritten_memory",
        "wrong_shape": "integrity/unwritten_memory",
    },
    doc="Windows that each call allocates, clears and releases.",
)
