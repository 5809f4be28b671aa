"""Rung 6: neighbours exchange rows by put, put_signal and get."""

from harness import Scenario
from systems.collectives import put_get
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.put_get",
    host=put_get.host,
    reference=put_get.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory|integrity/stale_value",
        "dropped_notify": "deadlock/missing_notify|deadlock/cycle",
        "dropped_quiet": "integrity/unwritten_memory|lifetime/overwritten_while_read",
        "duplicated_notify": (
            "integrity/stale_value|lifetime/overwritten_while_read|integrity/wrong_value"
        ),
        "misaligned_base": (
            "integrity/guard_overwritten|exceptions/misaligned|integrity/wrong_value|"
            "integrity/unwritten_memory|deadlock/missing_notify|deadlock/wrong_cell|"
            "deadlock/cycle"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": (
            "equivalent: each wait that follows a notify is for another stream, which does not "
            "need it"
        ),
        "offset_off_by_one": (
            "exceptions/out_of_bounds|integrity/wrong_value|integrity/unwritten_memory"
        ),
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": (
            "deadlock/missing_notify|deadlock/cycle|integrity/unwritten_memory|"
            "integrity/stale_value|deadlock/wrong_cell|integrity/wrong_value|"
            "lifetime/overwritten_while_read"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": (
            "deadlock/missing_notify|deadlock/wrong_cell|deadlock/cycle|integrity/stale_value"
        ),
        "wrong_notify_op": "deadlock/missing_notify|deadlock/cycle",
        "wrong_peer": (
            "deadlock/wrong_cell|deadlock/missing_notify|integrity/wrong_value|"
            "integrity/stale_value|integrity/unwritten_memory"
        ),
        "wrong_shape": "integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 6: neighbours exchange rows by put, put_signal and get.",
)
