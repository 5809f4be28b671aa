"""What the world does to a correct program. It survives, or fails cleanly.

Modelled: the crash of a rank. What it had put in flight still arrives; a lane that waits for what
only the dead rank could do gets `PeerLost`. Late deliveries, slow ranks and preemptions are
schedules, not rewritten operations (timing.py). Not modelled: a crashed rank that comes back.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.operations import HOST
from harness import EVERY, Die, Fault, Operation


class Crash(Fault, frozen=True, tag="crash"):
    """The rank dies just before its nth operation of any kind.

    A correct system ends right, or its survivors end in PeerLost.
    """

    family: ClassVar[Literal["environment", "bug"]] = "environment"
    everywhere: ClassVar[bool] = False

    def matches(self, op: Operation) -> bool:
        """Every call of the rank program; the world never kills all ranks at once."""
        return op.kind not in HOST and self.rank != EVERY

    def rewrite(self, op: Operation) -> Die:
        """Die before the operation."""
        return Die()
