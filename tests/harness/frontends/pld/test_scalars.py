"""A device's integers truncate and wrap; the host's floor and do not."""

import pytest

from harness.errors import WrongArgument
from harness.frontends.pypto.dtypes import BOOL, FP32, INDEX, INT8, INT32
from harness.frontends.pypto.scalars import DeviceInt, exact, int32, scalar


@pytest.mark.parametrize(("left", "right"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (-1, 4), (0, 3)])
def test_quotient_and_remainder_truncate(left, right):
    quotient, rest = int32(left) // right, int32(left) % right
    assert quotient == int(left / right)
    assert rest == left - right * quotient
    assert left // int32(right) == quotient
    assert left % int32(right) == rest


def test_the_left_neighbour_of_rank_0_is_negative_on_a_device():
    assert (int32(0) - 1) % 4 == -1
    assert (0 - 1) % 4 == 3


def test_results_wrap_at_their_width():
    assert int32(2**31 - 1) + 1 == -(2**31)
    assert scalar(200, INT8) == -56
    assert DeviceInt(2**31 - 1, INDEX) + int32(1) == 2**31


def test_a_scalar_stays_one_and_compares_as_a_number():
    made = 3 - int32(1)
    assert type(made) is DeviceInt
    assert made.dtype is INT32
    assert made == 2
    assert made in {2: "x"}
    assert type(exact(made)) is int


def test_other_kinds():
    assert scalar(int32(3), FP32) == 3.0
    assert scalar(-2.7, INT32) == -2
    assert scalar(2, BOOL) is True


def test_what_is_no_whole_number_is_refused():
    with pytest.raises(WrongArgument, match=r"1\.5 where a whole number is due"):
        exact(1.5)


def test_division_by_zero_is_an_error():
    with pytest.raises(ZeroDivisionError):
        int32(1) % 0
