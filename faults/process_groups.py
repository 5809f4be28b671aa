"""What happens to a rank's calls of a real process group (gloo, NCCL) under torch.distributed.

Each hits the nth call of a rank, or the nth of one kind (`call="all_reduce"`), in the rank's own
process; the program is not changed (docs/torch.md). The faults of faults/processes.py happen there as
well, before the nth call. What a correct system does: the call is late and right, or every survivor has
an error within the group's time-out.

Nobody promises to notice a flipped bit or two calls in the wrong order: these say what does go unnoticed.
Not modelled: what happens on the wire (harness/network.py does that to whole ranks).
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from harness import EVERY, Drop, Fault, Operation, Strike

Kind = Literal[
    "", "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv",
    "barrier", "monitored_barrier",
]
KINDS = frozenset(Kind.__args__) - {""}  # type: ignore[attr-defined]
NO_INPUT = frozenset(("recv", "barrier", "monitored_barrier"))
NO_OUTPUT = frozenset(("send", "barrier", "monitored_barrier"))


class _CallFault(Fault, frozen=True):
    """Base: matches the calls of one rank. call: of this kind only, "" = of every kind."""

    family: ClassVar[Literal["environment", "bug"]] = "environment"
    everywhere: ClassVar[bool] = False
    fabrics: ClassVar[tuple[str, ...]] = ("torchrun",)

    call: Kind = ""

    def matches(self, op: Operation) -> bool:
        """Calls of that kind; the world never hits all ranks at once."""
        return op.kind in KINDS and self.call in ("", op.kind) and self.rank != EVERY


class LateCall(_CallFault, frozen=True, tag="late_call"):
    """The rank makes its call late."""

    milliseconds: Annotated[int, msgspec.Meta(ge=1, le=60_000)] = 200

    def rewrite(self, op: Operation) -> Strike:
        """Sleep, without the clock of the run, then make it."""
        return Strike(lambda: select.select([], [], [], self.milliseconds / 1000) and None)


class DroppedCall(_CallFault, frozen=True, tag="dropped_call"):
    """The rank leaves the call out, and goes on as if it had been made."""

    def rewrite(self, op: Operation) -> Drop:
        """Make no call."""
        return Drop()


class SwappedCalls(_CallFault, frozen=True, tag="swapped_calls"):
    """The rank's call goes out behind its next one of the same kind."""

    def matches(self, op: Operation) -> bool:
        """Monitored barriers block in the call itself: nothing can come before their end."""
        return super().matches(op) and op.kind != "monitored_barrier"

    def rewrite(self, op: Operation) -> Operation:
        """Hold it back."""
        return op.with_args(held=True)


class _FlippedBit(_CallFault, frozen=True):
    """Base: bit 0 is the highest (a sign); element and bit wrap around, so that every pair hits one."""

    element: Annotated[int, msgspec.Meta(ge=0)] = 0
    bit: Annotated[int, msgspec.Meta(ge=0, le=127)] = 0


class CorruptInput(_FlippedBit, frozen=True, tag="corrupt_input"):
    """One bit of the tensor that the rank gives is flipped in its memory before the call."""

    def matches(self, op: Operation) -> bool:
        """Calls that are given a tensor."""
        return super().matches(op) and op.kind not in NO_INPUT

    def rewrite(self, op: Operation) -> Operation:
        """Flip it."""
        return op.with_args(flip_input=(self.element, self.bit))


class CorruptResult(_FlippedBit, frozen=True, tag="corrupt_result"):
    """One bit of the tensor that the rank receives is flipped once the call is complete."""

    def matches(self, op: Operation) -> bool:
        """Calls that give a tensor back."""
        return super().matches(op) and op.kind not in NO_OUTPUT

    def rewrite(self, op: Operation) -> Operation:
        """Flip it."""
        return op.with_args(flip_output=(self.element, self.bit))


class KilledInCall(_CallFault, frozen=True, tag="killed_in_call"):
    """The rank's process gets SIGKILL as soon as its call has gone out: the transfer may have begun."""

    def rewrite(self, op: Operation) -> Operation:
        """Send it behind the call."""
        return op.with_args(afterwards=lambda: os.kill(os.getpid(), signal.SIGKILL))


class WrongEnvironment(Fault, frozen=True, tag="wrong_environment"):
    """The rank is started with a wrong RANK, WORLD_SIZE or address; "" = the variable is missing."""

    family: ClassVar[Literal["environment", "bug"]] = "environment"
    everywhere: ClassVar[bool] = False
    starts: ClassVar[bool] = True
    fabrics: ClassVar[tuple[str, ...]] = ("torchrun",)

    name: Literal["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] = "WORLD_SIZE"
    value: Annotated[str, msgspec.Meta(max_length=64)] = "1"

    def matches(self, op: Any) -> bool:
        """No call: it is there before the first."""
        return False

    def deed(self) -> Callable[[], None]:
        """Change the variable."""

        def change() -> None:
            if self.value:
                os.environ[self.name] = self.value
            else:
                os.environ.pop(self.name, None)

        return change
