"""Strategies of parameters stay within the bounds of their annotations; texts come from Faker."""

import enum
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given, settings
from msgspec import Meta, Struct

from harness.errors import UsageError
from harness.param_values import struct_values
from harness.strategy import drawn

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(Struct, frozen=True, forbid_unknown_fields=True):
    depth: Annotated[int, Meta(gt=2, lt=6)]


class Everything(Struct, frozen=True, forbid_unknown_fields=True):
    closed: Annotated[int, Meta(ge=3, le=9)]
    open: Annotated[int, Meta(gt=3, lt=9)]
    low: Annotated[int, Meta(ge=1000)]
    high: Annotated[int, Meta(le=-1000)]
    free: int
    even: Annotated[int, Meta(ge=3, le=40, multiple_of=4)]
    ratio: Annotated[float, Meta(gt=0.0, lt=1.0)]
    far: Annotated[float, Meta(ge=5.0)]
    flag: bool
    word: Annotated[str, Meta(min_length=2, max_length=5)]
    long: Annotated[str, Meta(min_length=12)]
    code: Annotated[str, Meta(pattern="^[a-c]{2}$")]
    mode: Literal["ring", "mesh"]
    colour: Colour
    maybe: Annotated[int, Meta(ge=1, le=2)] | None
    sizes: Annotated[tuple[Annotated[int, Meta(ge=1, le=4)], ...], Meta(min_length=1, max_length=3)]
    names: Annotated[list[Literal["x"]], Meta(min_length=1)]
    pair: tuple[bool, Annotated[int, Meta(ge=0, le=1)]]
    inner: Inner



@quick
@given(struct_values(Everything))
def test_parameters_of_every_type_lie_within_their_bounds(params):
    back = msgspec.convert(msgspec.to_builtins(params), Everything, strict=True)
    assert back == params


def test_the_simplest_parameters_come_first():
    first = drawn(struct_values(Everything), 1, "any")[0]
    assert (first.closed, first.open, first.low, first.high) == (3, 4, 1000, -1000)
    assert (first.even, first.flag, first.sizes) == (4, False, (1,))
    assert len(first.word) == 2
    assert len(first.long) == 12


def test_a_type_without_strategy_is_named():
    class Odd(Struct):
        table: dict[str, int]

    with pytest.raises(UsageError, match=r"Odd\.table: no strategy for DictType"):
        drawn(struct_values(Odd), 1)


def test_texts_of_a_faker_provider_are_words_and_follow_from_the_stamp():
    class Asked(Struct, frozen=True):
        prompts: Annotated[
            tuple[Annotated[str, Meta(extra={"faker": "sentence"})], ...],
            Meta(min_length=2, max_length=2),
        ]

    found = drawn(struct_values(Asked), 20, "texts")
    assert found == drawn(struct_values(Asked), 20, "texts")
    texts = {text for one in found for text in one.prompts}
    assert len(texts) > 10
    assert all(len(text.split()) > 1 and text.endswith(".") for text in texts)


def test_a_provider_that_faker_lacks_is_named():
    class Asked(Struct, frozen=True):
        prompt: Annotated[str, Meta(extra={"faker": "sentense"})]

    with pytest.raises(UsageError, match=r"Asked\.prompt: Faker has no provider 'sentense'"):
        drawn(struct_values(Asked), 1)
