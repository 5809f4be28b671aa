"""What whoever starts a torch.distributed program gets wrong in the environment of one rank.

A world that is told two things comes to an error at `init_process_group`, on some rank. The world is not
to blame when a correct program meets this, so these are no environment faults of a bare hunt.
"""

from __future__ import annotations

from typing import ClassVar

from harness import EVERY, Fault, Operation


class _Launched(Fault, frozen=True, tag="launched"):
    """Of the variables that a rank is started with."""

    everywhere: ClassVar[bool] = False

    def matches(self, op: Operation) -> bool:
        """The start of one rank."""
        return op.kind == "launch" and self.rank != EVERY


class WrongRankVariable(_Launched, frozen=True, tag="wrong_rank_variable"):
    """RANK is one too high: another rank has it as well, or the world has no such rank."""

    def rewrite(self, op: Operation) -> Operation:
        """The next rank's number."""
        return op.with_args(rank=op.args["rank"] + 1)


class WrongWorldSizeVariable(_Launched, frozen=True, tag="wrong_world_size_variable"):
    """WORLD_SIZE is one too high: the rank waits for one more than there is."""

    def rewrite(self, op: Operation) -> Operation:
        """One more rank."""
        return op.with_args(size=op.args["size"] + 1)
