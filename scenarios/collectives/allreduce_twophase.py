"""Rung 9: all-reduce by reduce-scatter and all-gather."""

from harness import Scenario
from systems.collectives import allreduce_twophase

scenario = Scenario(
    name="collectives.allreduce_twophase",
    host=allreduce_twophase.host,
    reference=allreduce_twophase.reference,
    params=allreduce_twophase.ChunkedRounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory|integrity/wrong_value|integrity/stale_value",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle",
        "duplicated_notify": (
            "integrity/stale_value|integrity/wrong_value|integrity/unwritten_memory"
        ),
        "misaligned_base": (
            "integrity/guard_overwritten|exceptions/misaligned|integrity/wrong_value|"
            "integrity/unwritten_memory|deadlock/missing_notify"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle|deadlock/missing_notify",
        "offset_off_by_one": (
            "exceptions/out_of_bounds|integrity/wrong_value|integrity/unwritten_memory"
        ),
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "integrity/unwritten_memory|deadlock/missing_notify|deadlock/cycle|"
            "integrity/wrong_value|integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/index_error|exceptions/out_of_bounds",
        "wrong_cell": "deadlock/wrong_cell|deadlock/missing_notify|deadlock/cycle",
        "wrong_notify_op": "deadlock/missing_notify|deadlock/cycle",
        "wrong_peer": (
            "deadlock/missing_notify|integrity/wrong_value|integrity/unwritten_memory|"
            "deadlock/cycle"
        ),
        "wrong_shape": "exceptions/runtime_error|integrity/unwritten_memory|integrity/wrong_value",
    },
    doc="Rung 9: all-reduce by reduce-scatter and all-gather.",
)
