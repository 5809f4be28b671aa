"""Rung 8: all-reduce in place over a full mesh."""

from harness import Scenario
from systems.collectives import allreduce_mesh
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.allreduce_mesh",
    host=allreduce_mesh.host,
    reference=allreduce_mesh.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "integrity/stale_value|integrity/wrong_value",
        "misaligned_base": (
            "integrity/wrong_value|exceptions/misaligned|integrity/unwritten_memory|"
            "integrity/guard_overwritten|deadlock/missing_notify|deadlock/cycle|"
            "integrity/stale_value"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": (
            "exceptions/out_of_bounds|integrity/wrong_value|integrity/unwritten_memory|"
            "integrity/stale_value"
        ),
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "deadlock/missing_notify|integrity/wrong_value|integrity/unwritten_memory|"
            "deadlock/cycle|integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/wrong_cell|deadlock/missing_notify",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": (
            "deadlock/missing_notify|integrity/wrong_value|deadlock/wrong_cell|"
            "integrity/stale_value|deadlock/cycle"
        ),
        "wrong_shape": (
            "exceptions/runtime_error|integrity/wrong_value|integrity/unwritten_memory|"
            "integrity/stale_value"
        ),
    },
    doc="Rung 8: all-reduce in place over a full mesh.",
)
