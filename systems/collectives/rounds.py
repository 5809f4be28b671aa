"""What the rungs' host programs share: how many rounds with how many elements, and their inputs.

A round is one dispatch on every rank. Nothing orders the rounds of two ranks but the rung itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from msgspec import Meta, Struct

from harness import World, values

Sizes = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=64)], ...], Meta(min_length=1, max_length=3)
]


class Rounds(Struct, frozen=True, forbid_unknown_fields=True):
    """sizes: elements a rank (float32) of each round."""

    sizes: Sizes = (4, 7)


def shared(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory that every rank's process sees; to be done before `prepare`."""
    moved: torch.Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return moved


def in_rounds(
    world: World, sizes: Sequence[int], label: str,
    dispatch: Callable[[torch.Tensor, torch.Tensor, int, int], None], *, given: int = 1,
    taken: int = 1,
) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round as `label round`, one row a rank.

    dispatch(x, out, n, round): dispatches every rank once. given, taken: elements that a rank gives in
    x and gets in out, in multiples of n.
    """
    observed = {}
    for round, n in enumerate(sizes):
        x = shared(inputs(world.size, given * n, round))
        out = shared(torch.zeros(world.size, taken * n))
        world.prepare(x, out)
        dispatch(x, out, n, round)
        observed[f"{label} {round}"] = list(out)
    return observed


def inputs(size: int, n: int, round: int) -> torch.Tensor:
    """[size, n] float32: row r is what rank r gives in `round`; every value occurs once."""
    return torch.stack([values(rank, n, round) for rank in range(size)])
