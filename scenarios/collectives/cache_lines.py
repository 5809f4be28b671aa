"""An exchange for cores with caches that are not coherent."""

from harness import Scenario
from systems.collectives import cache_lines
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.cache_lines",
    host=cache_lines.host,
    reference=cache_lines.reference,
    params=Rounds,
    ranks=(1, cache_lines.RANKS_MAX),
    caches=True,
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "dropped_fence": "integrity/unwritten_memory",
        "dropped_notify": "deadlock/missing_notify",
        "duplicated_notify": "equivalent: a Set done twice leaves what a Set leaves",
        "misaligned_base": "exceptions/misaligned",
        "missing_invalidate": "integrity/stale_value",
        "missing_publish": "integrity/unwritten_memory",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "notify_after_wait": "deadlock/cycle",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "threshold_off_by_one": "integrity/unwritten_memory",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_cell": "deadlock/missing_notify",
        "wrong_peer": "deadlock/missing_notify",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="An exchange for cores with caches that are not coherent.",
)
