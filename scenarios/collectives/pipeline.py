"""A row sent on in chunks, each with a cell of its own."""

from harness import Scenario
from systems.collectives import pipeline
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.pipeline",
    host=pipeline.host,
    reference=pipeline.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "integrity/stale_value",
        "misaligned_base": "exceptions/misaligned",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "integrity/unwritten_memory",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/wrong_cell",
        "wrong_notify_op": "deadlock/missing_notify",
        "wrong_peer": "integrity/wrong_value",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="A row sent on in chunks, each with a cell of its own.",
)
