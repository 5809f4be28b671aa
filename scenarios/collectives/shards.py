"""Weights loaded by shard and put together again."""

from harness import Scenario
from systems.collectives import shards
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.shards",
    host=shards.host,
    reference=shards.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "misaligned_base": "integrity/guard_overwritten",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "offset_off_by_one": "exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "skipped_barrier": "integrity/unwritten_memory",
        "window_counts_ranks": "exceptions/out_of_bounds",
        "wrong_peer": "integrity/wrong_value",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="Weights loaded by shard and put together again.",
)
