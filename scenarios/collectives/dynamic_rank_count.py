"""Rung 7: an all-gather whose shapes follow the world size."""

from harness import Scenario
from systems.collectives import dynamic_rank_count
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.dynamic_rank_count",
    host=dynamic_rank_count.host,
    reference=dynamic_rank_count.reference,
    params=Rounds,
    ranks=(1, 8),
    device_ids=lambda size: range(4, 4 + size),  # cards need be neither 0-based nor ranks
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory|integrity/stale_value|integrity/wrong_value",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": (
            "integrity/stale_value|integrity/unwritten_memory|integrity/wrong_value"
        ),
        "misaligned_base": (
            "exceptions/misaligned|integrity/guard_overwritten|integrity/wrong_value|"
            "deadlock/missing_notify|integrity/unwritten_memory"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle|deadlock/missing_notify",
        "offset_off_by_one": (
            "integrity/wrong_value|exceptions/out_of_bounds|integrity/unwritten_memory"
        ),
        "scalar_before_tensor": "exceptions/dispatch_error",
        "skipped_barrier": (
            "integrity/wrong_value|matching/missing_call|deadlock/missing_notify"
        ),
        "threshold_off_by_one": (
            "deadlock/missing_notify|integrity/unwritten_memory|integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/wrong_cell|deadlock/missing_notify",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": (
            "deadlock/missing_notify|deadlock/cycle|integrity/unwritten_memory|integrity/wrong_value"
        ),
        "wrong_shape": "integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 7: an all-gather whose shapes follow the world size.",
)
