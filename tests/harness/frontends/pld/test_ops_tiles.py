"""Tiles made, reshaped and padded."""

from __future__ import annotations

import math

import pytest
import torch

from harness.errors import PldRuleError, WrongShape
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.values import Tile

pl = modules()["pypto.language"]


def tile(*shape, valid=None):
    return Tile(torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape), valid)


def test_what_is_made():
    assert pl.full([1, 3], pl.INT32, 7).data.tolist() == [[7, 7, 7]]
    assert pl.tile.full([1, 2], dtype=pl.FP32, value=0).data.tolist() == [[0.0, 0.0]]
    assert pl.arange(3, [1, 3]).data.tolist() == [[3, 4, 5]]
    assert pl.arange(3, [2, 1], descending=True).data.tolist() == [[3], [2]]
    empty = pl.create_tile([2, 2], pl.FP32, target_memory=pl.MemorySpace.Vec)
    assert empty.data.isnan().all()


def test_reshape():
    assert pl.reshape(tile(4, 1), [1, 4]).data.tolist() == [[0, 1, 2, 3]]
    assert pl.reshape(tile(4, 1, valid=(3, 1)), [1, 4]).valid == (1, 3)
    with pytest.raises(WrongShape, match="as many"):
        pl.reshape(tile(4, 1), [3])
    with pytest.raises(WrongShape, match="partly valid"):
        pl.reshape(tile(4, 2, valid=(3, 2)), [8, 1])


def test_transpose_and_concat():
    assert torch.equal(pl.transpose(tile(2, 3, valid=(1, 3)), 0, 1).data, tile(2, 3).data.mT)
    assert pl.transpose(tile(2, 3, valid=(1, 3)), 0, 1).valid == (3, 1)
    assert pl.concat(tile(1, 2), tile(1, 3)).data.tolist() == [[0, 1, 0, 1, 2]]


def test_what_is_valid():
    part = pl.set_validshape(tile(2, 3), 1, 2)
    assert part.real.tolist() == [[0, 1]]
    assert pl.fillpad(part, pl.PadValue.min).data.tolist() == [[0, 1, -math.inf], [-math.inf] * 3]
    assert pl.fillpad(part, 5).data.tolist() == [[0, 1, 5], [5, 5, 5]]
    assert pl.fillpad_expand(part, [1, 4]).data.tolist() == [[0, 1, 0, 0]]
    short = Tile(torch.zeros(1, 2, dtype=torch.int16), (1, 1))
    assert pl.fillpad(short, pl.PadValue.max).data.tolist() == [[0, 32767]]
    with pytest.raises(PldRuleError):
        pl.set_validshape(tile(2, 3), 3, 2)


def test_a_move_changes_nothing():
    held = tile(2, 2)
    assert pl.move(held, target_memory=pl.MemorySpace.Left) is held
