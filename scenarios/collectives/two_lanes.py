"""An all-gather whose ranks have a sending and a receiving lane."""

from harness import Scenario
from systems.collectives import two_lanes
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.two_lanes",
    host=two_lanes.host,
    reference=two_lanes.reference,
    params=Rounds,
    ranks=(1, 8),
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
        "notify_after_wait": (
            "equivalent: what a lane has deferred is performed at the end of its dispatch, and nothing "
            "that is awaited within a dispatch waits for it"
        ),
        "offset_off_by_one": (
            "exceptions/out_of_bounds|integrity/wrong_value|integrity/unwritten_memory"
        ),
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "integrity/unwritten_memory|deadlock/missing_notify|integrity/stale_value|"
            "integrity/wrong_value"
        ),
        "window_counts_ranks": "exceptions/index_error|exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify|deadlock/wrong_cell|deadlock/cycle",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": (
            "integrity/wrong_value|deadlock/missing_notify|deadlock/wrong_cell|"
            "integrity/unwritten_memory"
        ),
        "wrong_shape": "integrity/unwritten_memory|integrity/wrong_value",
    },
    doc="An all-gather whose ranks have a sending and a receiving lane.",
)
