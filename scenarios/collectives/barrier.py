"""Rung 4: a reusable barrier from notify and wait, with rows put to all ranks."""

from harness import Scenario
from systems.collectives import barrier
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.barrier",
    host=barrier.host,
    reference=barrier.reference,
    params=Rounds,
    ranks=(1, 8),
    device_ids=lambda size: range(4, 4 + size),  # cards need be neither 0-based nor ranks
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify",
        "dropped_quiet": "integrity/unwritten_memory|integrity/stale_value|integrity/wrong_value",
        "duplicated_notify": (
            "integrity/unwritten_memory|integrity/stale_value|integrity/wrong_value"
        ),
        "misaligned_base": (
            "exceptions/misaligned|deadlock/missing_notify|integrity/wrong_value|"
            "integrity/guard_overwritten|integrity/unwritten_memory"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": (
            "integrity/wrong_value|exceptions/out_of_bounds|integrity/unwritten_memory"
        ),
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "deadlock/missing_notify|integrity/unwritten_memory|integrity/wrong_value|"
            "integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_notify_op": (
            "deadlock/overwritten_signal|deadlock/missing_notify|deadlock/cycle"
        ),
        "wrong_peer": (
            "deadlock/wrong_cell|deadlock/missing_notify|integrity/unwritten_memory|"
            "integrity/wrong_value"
        ),
        "wrong_shape": "integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 4: a reusable barrier from notify and wait, with rows put to all ranks.",
)
