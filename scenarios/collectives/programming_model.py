"""Rung 2: host, device and kernel level; rows scaled tile by tile."""

from harness import Scenario
from systems.collectives import programming_model
from systems.collectives.rounds import Rounds

scenario = Scenario(
    name="collectives.programming_model",
    host=programming_model.host,
    reference=programming_model.reference,
    params=Rounds,
    ranks=(1, 8),
    bug_faults={
        "dispatch_loop_too_short": "exceptions/dispatch_error",
        "missing_share_memory": "integrity/stale_private_memory",
        "non_contiguous_source": "exceptions/non_contiguous",
        "offset_off_by_one": "integrity/wrong_value|exceptions/out_of_bounds",
        "scalar_before_tensor": "exceptions/dispatch_error",
        "wrong_shape": "integrity/wrong_value",
    },
    doc="Rung 2: host, device and kernel level; rows scaled tile by tile.",
)
