"""Rung 10: all-reduce in place around a ring."""

from harness import Scenario
from systems.collectives import allreduce_ring
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.allreduce_ring",
    host=allreduce_ring.host,
    reference=allreduce_ring.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "integrity/wrong_value|integrity/stale_value",
        "misaligned_base": (
            "exceptions/misaligned|integrity/guard_overwritten|integrity/unwritten_memory|"
            "integrity/wrong_value|deadlock/missing_notify"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/wrong_value",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "deadlock/missing_notify|integrity/wrong_value|integrity/unwritten_memory|"
            "integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds|exceptions/index_error",
        "wrong_cell": "deadlock/missing_notify|deadlock/cycle|deadlock/wrong_cell",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": (
            "integrity/wrong_value|deadlock/wrong_cell|deadlock/missing_notify|"
            "integrity/unwritten_memory|integrity/stale_value"
        ),
        "wrong_shape": "integrity/wrong_value|exceptions/runtime_error|integrity/unwritten_memory",
    },
    doc="Rung 10: all-reduce in place around a ring.",
)
