"""`pl`'s arithmetic, against torch and against what a device computes differently."""

from __future__ import annotations

import math

import pytest
import torch

from harness.errors import WrongArgument, WrongShape
from harness.frontends.pypto import ops_math
from harness.frontends.pypto.dtypes import BF16, FP16, FP32, INDEX, INT32
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.scalars import DeviceInt
from harness.frontends.pypto.values import Tile

pl = modules()["pypto.language"]
A = torch.tensor([[1.5, -2.0, 3.0], [4.0, 5.5, -6.0]])
B = torch.tensor([[2.0, 4.0, -1.0], [0.5, 3.0, 2.0]])
INTS = torch.tensor([[7, -7, 5]], dtype=torch.int32)


@pytest.mark.parametrize(("operation", "expected"), [
    (pl.add, A + B), (pl.sub, A - B), (pl.mul, A * B), (pl.div, A / B), (pl.maximum, A.maximum(B)),
    (pl.minimum, A.minimum(B)), (pl.tensor.add, A + B), (pl.tile.mul, A * B),
])
def test_two_tiles(operation, expected):
    assert torch.equal(operation(Tile(A), Tile(B)).data, expected)


@pytest.mark.parametrize(("operation", "expected"), [
    (pl.add, A + 2), (pl.tile.muls, A * 2), (pl.div, A / 2), (pl.maximums, A.clamp(min=2)),
    (pl.minimum, A.clamp(max=2)),
])
def test_a_tile_and_a_scalar(operation, expected):
    assert torch.equal(operation(Tile(A), 2).data, expected)


def test_integers_of_tiles():
    tile = Tile(INTS)
    assert pl.div(tile, 2).data.tolist() == [[3, -3, 2]]
    assert pl.add(tile, 1.9).data.tolist() == [[8, -6, 6]]  # the scalar is one of the tile's type
    assert pl.fmod(tile, 4).data.tolist() == [[3, -3, 1]]
    assert pl.shl(tile, 1).data.tolist() == [[14, -14, 10]]
    assert pl.and_(tile, 3).data.tolist() == [[3, 1, 1]]
    full = Tile(torch.tensor([[2**31 - 1]], dtype=torch.int32))
    assert pl.add(full, 1).data.tolist() == [[-(2**31)]]


def test_scalars():
    assert pl.add(DeviceInt(-7, INT32), 2) == -5
    assert pl.div(DeviceInt(-7, INT32), 2) == -3
    assert pl.min(3, 5) == 3
    assert pl.max(DeviceInt(3, INDEX), 5) == 5
    assert type(pl.const(-4, pl.INT32)) is DeviceInt
    assert pl.cast(DeviceInt(3, INT32), target_type=pl.FP32) == 3.0
    assert pl.cast(3.9, pl.INDEX) == 3
    with pytest.raises(WrongArgument, match="row_max"):
        pl.min(Tile(A), 1)
    with pytest.raises(WrongArgument, match="right"):
        pl.sub(1, Tile(A))


def test_what_is_valid_of_a_result():
    left, right = Tile(A, (1, 3)), Tile(B, (2, 2))
    assert pl.add(left, right).valid == (1, 2)
    assert pl.exp(left).valid == (1, 3)
    assert pl.add(left, 1).valid == (1, 3)


@pytest.mark.parametrize(("name", "expected"), [
    ("row_sum", A.sum(1, keepdim=True)), ("row_max", A.amax(1, keepdim=True)),
    ("row_min", A.amin(1, keepdim=True)), ("row_prod", A.prod(1, keepdim=True)),
    ("col_sum", A.sum(0, keepdim=True)), ("col_max", A.amax(0, keepdim=True)),
    ("row_argmax", torch.tensor([[2], [1]], dtype=torch.int32)),
    ("col_argmin", torch.tensor([[0, 0, 1]], dtype=torch.int32)),
])
def test_reductions(name, expected):
    assert torch.equal(getattr(pl, name)(Tile(A), Tile(A)).data, expected)


def test_a_reduction_looks_at_valid_data_only():
    tile = Tile(torch.tensor([[1.0, 2.0, math.nan], [3.0, 4.0, math.nan], [math.nan] * 3]), (2, 2))
    found = pl.row_sum(tile)
    assert (found.shape, found.valid, found.real.tolist()) == ((3, 1), (2, 1), [[3.0], [7.0]])


def test_a_vector_along_a_tile():
    column, row = Tile(torch.tensor([[10.0], [20.0]])), Tile(torch.tensor([[1.0, 2.0, 3.0]]))
    assert torch.equal(pl.row_expand_add(Tile(A), column).data, A + column.data)
    assert torch.equal(pl.col_expand_mul(Tile(A), row).data, A * row.data)
    assert torch.equal(pl.row_expand(Tile(A), column).data, column.data.expand(2, 3))
    with pytest.raises(WrongShape, match="vector"):
        pl.row_expand_add(Tile(A), row)


def test_matrices():
    a, b = A.to(torch.float16), B.to(torch.float16).mT
    product = pl.matmul(Tile(a), Tile(b))
    assert product.dtype is FP32
    assert torch.equal(product.data, a.float() @ b.float())
    assert torch.equal(pl.matmul(Tile(A), Tile(B), b_trans=True).data, A @ B.mT)
    assert torch.equal(pl.matmul_acc(product, Tile(a), Tile(b)).data, 2 * product.data)
    assert torch.equal(pl.matmul_acc(product, Tile(a), Tile(b), init_cond=True).data, product.data)
    assert pl.matmul(Tile(A), Tile(B), FP16, b_trans=True).dtype is FP16
    with pytest.raises(WrongShape):
        pl.matmul(Tile(A), Tile(B))


@pytest.mark.parametrize(("mode", "expected"), [
    ("round", [3, -3, 2, -1]), ("rint", [2, -2, 2, -1]), ("floor", [2, -3, 1, -2]),
    ("ceil", [3, -2, 2, -1]), ("trunc", [2, -2, 1, -1]), ("odd", [3, -3, 1, -1]), (3, [2, -3, 1, -2]),
])
def test_how_floats_become_integers(mode, expected):
    tile = Tile(torch.tensor([[2.5, -2.5, 1.75, -1.25]]))
    assert pl.cast(tile, pl.INT32, mode).data.tolist() == [expected]


def test_other_casts():
    assert pl.cast(Tile(A), target_type=pl.BF16).dtype is BF16
    assert pl.cast(Tile(A, (1, 2)), pl.FP16).valid == (1, 2)
    with pytest.raises(WrongArgument, match="mode="):
        pl.cast(Tile(A), pl.INT32, "nearest")


def test_comparisons_and_choices():
    for code, compare in enumerate((A.eq, A.ne, A.lt, A.le, A.gt, A.ge)):
        assert torch.equal(pl.cmp(Tile(A), Tile(B), code).data, compare(B))
    assert torch.equal(pl.sel(pl.cmps(Tile(A), 0.0, 4), Tile(A), Tile(B), None).data, A.where(A > 0, B))
    with pytest.raises(WrongArgument):
        ops_math.cmp(Tile(A), 0, 6)


def test_what_an_operation_calls_itself():
    assert pl.add.__name__ == "add"
    assert pl.row_sum.__doc__.startswith("pl.row_sum")
