"""What the rungs' host programs share: how many rounds with how many elements, and their inputs.

A round is one dispatch on every rank. Nothing orders the rounds of two ranks but the rung itself.
"""

from __future__ import annotations

from typing import Annotated

import torch
from msgspec import Meta, Struct

from harness import values

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


def inputs(size: int, n: int, round: int) -> torch.Tensor:
    """[size, n] float32: row r is what rank r gives in `round`; every value occurs once."""
    return torch.stack([values(rank, n, round) for rank in range(size)])
