"""Rung 5: a ring shift by remote_store and by remote_load."""

from harness import Scenario
from systems.collectives import remote_load_store
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.remote_load_store",
    host=remote_load_store.host,
    reference=remote_load_store.reference,
    params=Rounds,
    ranks=(1, 8),
    device_ids=lambda size: range(4, 4 + size),  # cards need be neither 0-based nor ranks
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_quiet": "integrity/unwritten_memory|integrity/stale_value",
        "misaligned_base": (
            "integrity/guard_overwritten|integrity/wrong_value|integrity/unwritten_memory"
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
        "wrong_peer": "integrity/wrong_value|integrity/unwritten_memory|integrity/stale_value",
        "wrong_shape": "integrity/wrong_value|integrity/unwritten_memory",
    },
    doc="Rung 5: a ring shift by remote_store and by remote_load.",
)
