"""Sees every torch operation of one rank on tensors that are in flight (harness/fabric/tensors.py)."""

from __future__ import annotations

from typing import Any

from harness.fabric.tensors import Watching
from harness.frontends.torch_distributed.place import Place

# Operations that are the collectives themselves, or the wait for one.
_COLLECTIVES = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd"))


class Watched(Watching):
    """The rank's own: each rank runs on a thread of its own, and torch keeps modes by thread."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.sim)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Look, then do what was asked for."""
        if self._simulation.uses and func.namespace not in _COLLECTIVES:
            self._look(func, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)
