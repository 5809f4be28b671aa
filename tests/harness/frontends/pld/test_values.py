"""Views: regions, slices and shapes of memory, as stretches of adjacent elements; compared with torch."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import OutOfBounds, PldRuleError, WrongShape
from harness.fabric.memory import Buffer, Region
from harness.frontends.pypto.dtypes import FP32
from harness.frontends.pypto.values import HostTensor, Tile, View


def view(*shape):
    count = torch.Size(shape).numel()
    handle = Buffer(0, "x", [Region(4 * count, zero=True)], 0, (count,), torch.float32)
    return View(handle, shape, FP32)


def elements(found):
    """The numbers of a view's elements in its memory."""
    return list(itertools.chain.from_iterable(range(at, at + n) for at, n in found.runs()))


@st.composite
def boxes(draw):
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    starts = [draw(st.integers(0, n - 1)) for n in shape]
    extents = [draw(st.integers(1, n - s)) for n, s in zip(shape, starts, strict=True)]
    return shape, starts, extents


@given(boxes())
def test_a_region_names_the_elements_that_torch_does(box):
    shape, starts, extents = box
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
    parts = tuple(slice(s, s + n) for s, n in zip(starts, extents, strict=True))
    assert elements(view(*shape).region(starts, extents)) == numbers[parts].flatten().tolist()
    assert elements(view(*shape).box(parts)) == numbers[parts].flatten().tolist()


@given(boxes())
def test_a_number_as_an_index_takes_its_axis_away(box):
    shape, starts, _ = box
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
    found = view(*shape).box(starts[0])
    assert found.shape == tuple(numbers[starts[0]].shape)
    assert elements(found) == numbers[starts[0]].flatten().tolist()


def test_full_rows_are_one_stretch():
    assert view(4, 6).region([1, 0], [2, 6]).runs() == [(6, 12)]
    assert view(4, 6).region([1, 2], [2, 3]).runs() == [(8, 3), (14, 3)]
    assert view(4, 6).region([0, 0], [0, 6]).runs() == []


def test_a_region_that_leaves_the_memory_is_out_of_bounds():
    with pytest.raises(OutOfBounds, match=r"'x' \[4, 6\] FP32: offsets \[3, 0\] and shape \[2, 6\]"):
        view(4, 6).region([3, 0], [2, 6])
    with pytest.raises(OutOfBounds, match=r"elements -1\.\.0 of axis 0, which has 4"):
        view(4, 6).box(-1)


def test_a_region_has_an_offset_for_each_axis():
    with pytest.raises(PldRuleError) as caught:
        view(4, 6).region([0], [6])
    assert caught.value.rule == "offset_rank"


def test_dense_memory_has_any_shape_of_its_size():
    assert view(4, 6).reshaped((2, 12)).runs() == [(0, 24)]
    column = view(4, 6).region([0, 1], [4, 1])
    assert elements(column.reshaped((4,))) == [1, 7, 13, 19]
    with pytest.raises(WrongShape, match="24 elements"):
        view(4, 6).reshaped((5, 5))
    with pytest.raises(WrongShape, match="no dense memory"):
        view(4, 6).region([0, 1], [4, 2]).reshaped((8,))


def test_the_host_s_slices_are_parts_of_one_tensor():
    base = torch.arange(24.0).reshape(2, 3, 4)
    part = HostTensor(base, "x")[1, 0:2]
    assert part.base is base
    assert torch.equal(part.data, base[1, 0:2])
    with pytest.raises(PldRuleError, match="host code uses the elements") as caught:
        bool(part)
    assert caught.value.rule == "host_reads_tensor"


def test_the_real_part_of_a_tile():
    tile = Tile(torch.arange(12.0).reshape(3, 4), (2, 3))
    assert tile.real.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert Tile(torch.zeros(3, 4), (3, 4)).valid is None
