"""Mutants of rung 2: the host level's dispatch."""

from __future__ import annotations

import torch

from harness import World, mutant
from systems.collectives import programming_model as twin


@mutant(of=twin.host_level, expects="exceptions/dispatch_error", ranks=1)
def scalar_before_tensor(
    world: World, x: torch.Tensor, out: torch.Tensor, n: int, scale: int
) -> None:
    """A scalar argument stands before a tensor in the dispatch.

    Finding: exceptions/dispatch_error, tensors come before scalars. Smallest world: 1.
    """
    for r in range(len(world.device_ids)):
        world.dispatch(twin.device_level, x, n, out, scale, device=r)
