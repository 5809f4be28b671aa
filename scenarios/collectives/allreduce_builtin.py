"""Rung 11: the built-in all-reduce, mesh or ring, four reductions, three dtypes."""

from harness import Scenario
from systems.collectives import allreduce_builtin

scenario = Scenario(
    name="collectives.allreduce_builtin",
    host=allreduce_builtin.host,
    reference=allreduce_builtin.reference,
    params=allreduce_builtin.Reductions,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle",
        "duplicated_notify": "integrity/stale_value|integrity/wrong_value",
        "misaligned_base": (
            "integrity/guard_overwritten|exceptions/misaligned|deadlock/missing_notify|"
            "integrity/wrong_value|integrity/unwritten_memory|integrity/stale_value"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/wrong_value|integrity/stale_value",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "deadlock/missing_notify|integrity/wrong_value|integrity/unwritten_memory|"
            "integrity/stale_value|deadlock/cycle"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds|exceptions/index_error",
        "wrong_cell": "deadlock/missing_notify|deadlock/wrong_cell|deadlock/cycle",
        "wrong_notify_op": "deadlock/missing_notify|deadlock/cycle",
        "wrong_peer": (
            "integrity/wrong_value|deadlock/missing_notify|deadlock/wrong_cell|"
            "integrity/stale_value|deadlock/cycle"
        ),
        "wrong_shape": (
            "integrity/wrong_value|exceptions/runtime_error|integrity/unwritten_memory|"
            "integrity/stale_value"
        ),
    },
    doc="Rung 11: the built-in all-reduce, mesh or ring, four reductions, three dtypes.",
)
