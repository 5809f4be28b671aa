"""Extents that a call brings: bound for as long as it lasts, arithmetic on them evaluated then."""

import pytest

from harness.errors import PldRuleError
from harness.frontends.pypto.annotations import (
    InOut,
    Out,
    Scalar,
    Tensor,
    annotation_of,
    bound,
    dynamic,
)
from harness.frontends.pypto.dtypes import FP32, INT32

N, M = dynamic("N"), dynamic("M")


def test_arithmetic_is_evaluated_when_it_is_used():
    area = (N * 4 - M) // 3
    with bound({"N": 5, "M": 2}):
        assert int(area) == 6
        with bound({"N": 8}):
            assert int(area) == 10
        assert int(area) == 6


def test_an_extent_is_true_where_it_is_not_zero():
    with bound({"N": 6}):
        assert N
        assert not N % 3
        assert N % 4


def test_an_extent_that_nothing_binds_is_a_rule():
    with pytest.raises(PldRuleError, match="'N' has no value here") as caught:
        int(N * 2)
    assert caught.value.rule == "unbound_dynamic"


@pytest.mark.parametrize(
    ("expression", "total", "solved"),
    [(N * 2, 8, ("N", 4)), (3 + N, 8, ("N", 5)), (8 - N, 2, ("N", 6)), (N * 2 + 1, 9, ("N", 4))],
)
def test_an_expression_of_one_symbol_binds_it(expression, total, solved):
    assert expression.solved(total) == solved


@pytest.mark.parametrize("expression", [N * 3, N // 2, N * M])
def test_an_expression_that_tells_nothing_binds_nothing(expression):
    assert expression.solved(8) is None


def test_directions_and_kinds_are_kept():
    declared = Out[Tensor[[N, 4], FP32]]
    assert (declared.kind, declared.direction, declared.dtype) == ("tensor", "out", FP32)
    assert InOut[Tensor].shape is None
    assert Scalar[INT32].kind == "scalar"
    assert annotation_of(int) is None


def test_what_is_no_type_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="no element type"):
        Tensor[[4], 4]
    with pytest.raises(TypeError, match="no shape"):
        Tensor[4, FP32]
