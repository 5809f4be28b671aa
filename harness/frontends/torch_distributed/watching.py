"""Sees every torch operation of one rank on tensors that are in flight.

What fabric/tensors.py sees in replays is seen in every run here: only while a rank has something in
flight does it cost more than a call. Not seen: numpy, native code, strided tensors in flight.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from harness.fabric.frames import user_frame_of
from harness.fabric.tensors import accesses
from harness.frontends.torch_distributed.place import Place

# Operations that are the collectives themselves, or the wait for one.
_COLLECTIVES = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd"))


class Watched(TorchDispatchMode):
    """A rank's own: each rank runs on a thread of its own, and torch keeps modes by thread."""

    def __init__(self, place: Place) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._place = place

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: not wrapped for the compiler, which takes a second to import."""
        return False

    def __enter__(self) -> Watched:
        """Not as the base class does it: it keeps flags for the whole process, in the order of a stack,
        and ranks begin and end in any order."""
        _push_mode(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _pop_mode()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Look, then do what was asked for."""
        given = kwargs or {}
        place = self._place
        if place.uses and func.namespace not in _COLLECTIVES:
            for tensor, writes in accesses(func, args, given):
                code, lasti = user_frame_of(sys._getframe(1))
                place.touching(tensor, str(func), code, lasti, writes=writes)
        return func(*args, **given)
