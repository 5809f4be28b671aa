"""Tiles that cross between the cube core and the two vector cores of a group, in `pl.split_aiv` regions.

    for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
        half = pl.aiv_shard(product)        # this core's half of the rows (LEFT_RIGHT: columns)
        whole = pl.aic_gather(pl.exp(half)) # for the cube core, which reads it behind the region

A body that names its crossings is written for one core's half, and runs on both as it stands. What the
cores gather is put together when it is read. With SplitMode.NONE nothing is halved: both send to the same
place, and which of two different values the cube gets nobody says; that is refused.

Not modelled: bodies that name no crossing, of which the compiler halves each operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from harness.frontends.pypto.enums import SplitMode
from harness.frontends.pypto.operands import Later, tile_of
from harness.frontends.pypto.rules import broken
from harness.frontends.pypto.values import Tile

CROSSINGS = frozenset(("aiv_shard", "aic_gather"))
_AXES = {SplitMode.UP_DOWN: -2, SplitMode.LEFT_RIGHT: -1}


class Crossings:
    """What the two cores of one region have gathered, by the number of the call."""

    def __init__(self, mode: SplitMode) -> None:
        self.mode = mode
        self.parts: list[dict[int, Tile]] = []

    @contextmanager
    def on(self, lane: int) -> Iterator[None]:
        """What runs in it runs on core `lane`."""
        token = _HERE.set([self, lane, 0])
        try:
            yield
        finally:
            _HERE.reset(token)


# The region, which of its cores, how many calls of aic_gather it has made.
_HERE: ContextVar[list[Any] | None] = ContextVar("rankfault_pld_crossings", default=None)


class Gathered(Later):
    """What both cores send to the cube."""

    def __init__(self, crossings: Crossings, number: int) -> None:
        self._crossings = crossings
        self._number = number

    def get(self) -> Tile:
        """The whole tile. Raises PldRuleError (`lanes_differ`)."""
        mode, parts = self._crossings.mode, self._crossings.parts[self._number]
        if len(parts) != 2:
            raise broken(
                "lanes_differ", f"pl.aic_gather was reached by vector core {next(iter(parts))} only; "
                "both take part in it"
            )
        first, second = parts[0], parts[1]
        if mode in _AXES:
            axis = _AXES[mode]
            valid = list(first.real.shape)
            valid[axis] += second.real.shape[axis]
            if first.real.shape[axis] != first.data.shape[axis] and second.real.shape[axis]:
                raise broken("valid_shape", "pl.aic_gather of a first half that is not full")
            return Tile(torch.cat([first.data, second.data], axis), tuple(valid), first.dtype)
        if not torch.equal(first.real, second.real):
            raise broken(
                "lanes_differ", "pl.aic_gather with pl.SplitMode.NONE of a value that is not the same on "
                "both vector cores: the cube gets an unspecified one of the two"
            )
        return first


def aiv_shard(tile: Any) -> Tile:
    """This vector core's part of a tile of the cube. Raises PldRuleError outside pl.split_aiv."""
    crossings, lane, _ = _here("aiv_shard")
    given = tile_of(tile)
    axis = _AXES.get(crossings.mode)
    if axis is None:
        return given
    extent = given.data.shape[axis]
    if extent % 2:
        raise broken("split_aiv", f"pl.aiv_shard halves an axis of {extent} elements")
    half = extent // 2
    valid = list(given.real.shape)
    valid[axis] = min(max(valid[axis] - lane * half, 0), half)
    return Tile(given.data.narrow(axis, lane * half, half), tuple(valid), given.dtype)


def aic_gather(tile: Any) -> Gathered:
    """A tile for the cube, of both vector cores' parts. Raises PldRuleError outside pl.split_aiv."""
    here = _here("aic_gather")
    crossings, lane, number = here
    here[2] += 1
    if number == len(crossings.parts):
        crossings.parts.append({})
    crossings.parts[number][lane] = tile_of(tile)
    return Gathered(crossings, number)


def _here(what: str) -> list[Any]:
    found = _HERE.get()
    if found is None:
        raise broken("split_aiv", f"pl.{what} outside pl.split_aiv")
    return found
