"""Rung 15, ragged: all-to-all-v with blocks of any length."""

from harness import Scenario
from systems.collectives import alltoallv
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.alltoallv",
    host=alltoallv.host,
    reference=alltoallv.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory|integrity/wrong_value|integrity/stale_value",
        "dropped_notify": "deadlock/missing_notify|integrity/wrong_value|deadlock/cycle",
        "duplicated_notify": "integrity/wrong_value|integrity/stale_value",
        "misaligned_base": (
            "exceptions/misaligned|integrity/guard_overwritten|integrity/unwritten_memory|"
            "deadlock/missing_notify|integrity/wrong_value"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle|integrity/wrong_value",
        "offset_off_by_one": "exceptions/out_of_bounds|integrity/wrong_value|integrity/unwritten_memory",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "exceptions/out_of_bounds|deadlock/missing_notify|integrity/wrong_value|"
            "integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds|exceptions/index_error",
        "wrong_cell": (
            "deadlock/cycle|deadlock/wrong_cell|integrity/wrong_value|integrity/unwritten_memory"
        ),
        "wrong_notify_op": "deadlock/missing_notify|integrity/wrong_value",
        "wrong_peer": (
            "integrity/wrong_value|deadlock/missing_notify|integrity/unwritten_memory|"
            "deadlock/cycle"
        ),
        "wrong_shape": "exceptions/value_error|integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 15, ragged: all-to-all-v with blocks of any length.",
)
