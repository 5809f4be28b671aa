"""What a compiler leaves out of a program whose cores have caches.

Both exist only where the plan's delivery switches give cores caches (fabric/memory.py, rows P and S), and
each says of one notify or wait what `InsertCommFence` of PyPTO's compiler would see to. With every rank
and occurrence (-1) they are the mode without it.
"""

from __future__ import annotations

from typing import ClassVar

from harness import Fault, Operation


class MissingPublish(Fault, frozen=True, tag="missing_publish"):
    """A notify does not wait until the lane's stores are in memory, so it may overtake them."""

    caches: ClassVar[bool] = True

    def matches(self, op: Operation) -> bool:
        """Notifies and put_signals of a core with a cache."""
        return bool(op.args.get("publish"))

    def rewrite(self, op: Operation) -> Operation:
        """The same without the publish."""
        return op.with_args(publish=False)


class MissingInvalidate(Fault, frozen=True, tag="missing_invalidate"):
    """After a wait the lane keeps its copies of lines, and may read them for what came since."""

    caches: ClassVar[bool] = True

    def matches(self, op: Operation) -> bool:
        """Waits of a core with a cache."""
        return bool(op.args.get("invalidate"))

    def rewrite(self, op: Operation) -> Operation:
        """The same without the invalidate."""
        return op.with_args(invalidate=False)
