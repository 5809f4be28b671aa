"""Mistakes of the host program: what it shares, passes and dispatches.

`rank` is the logical rank that a dispatch is for; `prepare` concerns all ranks and ignores it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from harness import EVERY, Drop, Fault, Operation, is_window_or_tensor


class MissingShareMemory(Fault, frozen=True, tag="missing_share_memory"):
    """share_memory_() was not called: each rank sees private copies of the prepared tensors."""

    def matches(self, op: Operation) -> bool:
        """Prepares of at least one tensor."""
        return op.kind == "prepare" and len(op.args["tensors"]) > 0

    def rewrite(self, op: Operation) -> Operation:
        """Prepare private copies, unchecked."""
        return op.with_args(private=range(len(op.args["tensors"])))


def _first_scalar(args: tuple[Any, ...]) -> int | None:
    """Where the first scalar stands behind a tensor or window, None where no scalar does."""
    seen = False
    for index, arg in enumerate(args):
        if is_window_or_tensor(arg):
            seen = True
        elif seen:
            return index
    return None


class ScalarBeforeTensor(Fault, frozen=True, tag="scalar_before_tensor"):
    """A dispatch passes its first scalar before its tensors."""

    def matches(self, op: Operation) -> bool:
        """Dispatches with a tensor or window and a scalar behind it."""
        return op.kind == "dispatch" and _first_scalar(op.args["args"]) is not None

    def rewrite(self, op: Operation) -> Operation:
        """The scalar first."""
        args = op.args["args"]
        index = _first_scalar(args)
        assert index is not None
        return op.with_args(args=(args[index], *args[:index], *args[index + 1 :]))


class DispatchLoopTooShort(Fault, frozen=True, tag="dispatch_loop_too_short"):
    """The dispatch loop leaves a rank out."""

    everywhere: ClassVar[bool] = False

    def matches(self, op: Operation) -> bool:
        """Dispatches of one rank, in a world of two or more."""
        return op.kind == "dispatch" and op.size > 1 and self.rank != EVERY

    def rewrite(self, op: Operation) -> Drop:
        """Leave the dispatch out."""
        return Drop()
