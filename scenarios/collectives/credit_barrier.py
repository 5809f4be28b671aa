"""A barrier whose credits are given back."""

from harness import Scenario
from systems.collectives import credit_barrier
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.credit_barrier",
    host=credit_barrier.host,
    reference=credit_barrier.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory",
        "dropped_notify": "deadlock/missing_notify",
        "dropped_quiet": "integrity/stale_value|races/unordered_write",
        "duplicated_notify": (
            "deadlock/overdrawn|integrity/stale_value|deadlock/missing_notify|deadlock/signal_leak"
        ),
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "integrity/unwritten_memory",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify",
        "wrong_notify_op": "deadlock/overwritten_signal",
        "wrong_peer": "deadlock/missing_notify",
        "wrong_shape": "integrity/unwritten_memory",
    },
    doc="A barrier whose credits are given back.",
)
