"""Signals on numbered channels in front of data."""

from harness import Scenario
from systems.collectives import channels
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.channels",
    host=channels.host,
    reference=channels.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/stale_value",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "integrity/stale_value",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "skipped_barrier": "integrity/wrong_value",
        "threshold_off_by_one": "integrity/stale_value",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/wrong_cell",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": "deadlock/missing_notify",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="Signals on numbered channels in front of data.",
)
