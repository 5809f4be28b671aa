"""The windows, buffers and host tensors of one run, by number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.fabric.memory import ITEMSIZE, Region


class SharedWindows:
    """The windows of one run: by number, and by (group, name, occurrence) for collective allocation.

    regions: by number, the memory by rank; None for a rank outside the window's group.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.regions: list[Sequence[Any]] = []
        self.names: list[tuple[str, str, tuple[int, ...], torch.dtype]] = []
        self.by_tensor: dict[tuple[int, int, int, torch.dtype], int] = {}  # plain tensors in use
        self.by_call: dict[tuple[tuple[int, ...], str, int], int] = {}

    def add(
        self, kind: str, name: str, shape: tuple[int, ...], dtype: torch.dtype,
        regions: Sequence[Any],
    ) -> int:
        """Register memory; returns its number."""
        self.regions.append(regions)
        self.names.append((kind, name, shape, dtype))
        return len(self.regions) - 1

    def own(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """A private buffer of a rank, filled with poison; returns its number."""
        region = Region(math.prod(shape) * ITEMSIZE[dtype], zero=False)
        name = f"buffer{len(self.names)}"
        return self.add("buffer", name, shape, dtype, OneRegion(rank, region))

    def collective(
        self, key: tuple[tuple[int, ...], str, int], name: str, shape: tuple[int, ...],
        dtype: torch.dtype, members: tuple[int, ...], *, zero: bool,
    ) -> int:
        """The window of a collective call: made by whoever comes first, the same for all."""
        number = self.by_call.get(key)
        if number is None:
            nbytes = math.prod(shape) * ITEMSIZE[dtype]
            regions = [
                Region(nbytes, zero=zero) if not members or rank in members else None
                for rank in range(self.size)
            ]
            number = self.by_call[key] = self.add("window", name, shape, dtype, regions)
        return number

    def intact(self) -> bool:
        """Whether every guard holds what it held."""
        for regions in self.regions:
            for region in regions:
                if region is not None and not region.intact():
                    return False
        return True

    def __iter__(self) -> Iterator[Region]:
        """Every region once."""
        for regions in self.regions:
            yield from {id(region): region for region in regions if region is not None}.values()


class OneRegion(Sequence[Region]):
    """The regions of a private buffer: one rank has one, the others have none."""

    def __init__(self, rank: int, region: Region) -> None:
        self._rank = rank
        self._region = region

    def __iter__(self) -> Iterator[Region]:
        return iter((self._region,))

    def __len__(self) -> int:
        return self._rank + 1

    def __getitem__(self, rank: Any) -> Any:
        if rank != self._rank:
            raise IndexError(rank)
        return self._region
