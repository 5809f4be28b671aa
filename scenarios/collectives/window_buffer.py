"""Rung 3: rows published in a window, read by all ranks behind a barrier."""

from harness import Scenario
from systems.collectives import window_buffer
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.window_buffer",
    host=window_buffer.host,
    reference=window_buffer.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "misaligned_base": (
            "integrity/guard_overwritten|integrity/unwritten_memory|integrity/wrong_value"
        ),
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "offset_off_by_one": (
            "exceptions/out_of_bounds|integrity/wrong_value|integrity/unwritten_memory"
        ),
        "scalar_before_tensor": "exceptions/dispatch_error",
        "skipped_barrier": (
            "integrity/unwritten_memory|matching/missing_call|integrity/wrong_value|"
            "integrity/stale_value"
        ),
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_peer": "integrity/wrong_value",
        "wrong_shape": "integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 3: rows published in a window, read by all ranks behind a barrier.",
)
