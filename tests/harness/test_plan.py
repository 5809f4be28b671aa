"""Plans round-trip exactly, and what is wrong with one names its field."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import PlanError
from harness.plan import (
    FORMAT,
    RANKS_MAX,
    Crash,
    Fault,
    Hold,
    Plan,
    Preempt,
    Visibility,
    decode_wire,
    encode,
    from_wire,
)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    label: str = ""
    ratio: float = 0.5


class Off(Fault, frozen=True, tag="off_by"):
    by: int = 1


class Plain(Fault, frozen=True):
    pass


FAULTS = {"off_by": Off, "Plain": Plain}
NATURAL = st.integers(0, 2**62)
DEVIATIONS = st.builds(Hold, NATURAL, NATURAL) | st.builds(Preempt, NATURAL, NATURAL)


@st.composite
def plans(draw):
    ranks = draw(st.integers(1, RANKS_MAX))
    rank = st.integers(0, ranks - 1)
    faults = st.builds(Off, rank=rank, nth=NATURAL, by=st.integers(-(2**62), 2**62)) | st.builds(
        Plain, rank=rank, nth=NATURAL
    )
    return Plan(
        scenario=draw(st.text()),
        params=draw(
            st.builds(
                Params,
                st.integers(1, 64),
                st.text(),
                st.floats(allow_nan=False, allow_infinity=False),
            )
        ),
        ranks=ranks,
        bug=draw(st.none() | st.text()),
        visibility=draw(
            st.builds(
                Visibility,
                st.sampled_from(["relaxed", "eager"]),
                st.sampled_from([0, 4, 8, 64]),
                st.booleans(),
                st.booleans(),
                st.booleans(),
            )
        ),
        faults=draw(st.lists(faults, max_size=3).map(tuple)),
        schedule=draw(st.lists(DEVIATIONS, max_size=4).map(tuple)),
        crash=draw(st.none() | st.builds(Crash, NATURAL, st.lists(NATURAL).map(tuple), NATURAL)),
    )


def decode(data):
    return from_wire(decode_wire(data), Params, FAULTS)


@given(plans())
def test_a_plan_round_trips_exactly(plan):
    data = encode(plan)
    again = decode(data)
    assert again == plan
    assert encode(again) == data
    assert b"\n" not in data


def test_fields_stand_in_the_order_in_which_a_reader_wants_them():
    plan = Plan(scenario="s", params=Params(), ranks=2, faults=(Off(by=2),), schedule=(Hold(1),))
    assert encode(plan).decode() == (
        '{"format":1,"scenario":"s","ranks":2,"params":{"count":4,"label":"","ratio":0.5},"bug":null,'
        '"visibility":{"delivery":"relaxed","torn":0,"lines":false,"stale":false,"delayed":false},'
        '"faults":[{"fault":"off_by","rank":0,"nth":0,"by":2}],'
        '"schedule":[{"kind":"hold","op":1,"until":0}],"crash":null}'
    )


def test_only_the_first_four_fields_are_needed():
    plan = decode(b'{"format":1,"scenario":"s","ranks":2,"params":{}}')
    assert plan == Plan(scenario="s", params=Params(), ranks=2)


BASE = {"format": 1, "scenario": "s", "ranks": 2, "params": {}}


def changed(**fields):
    return msgspec.json.encode({**BASE, **fields})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ("truncated",)),
        (b'{"format":1,', ("truncated",)),
        (b"[]", ("Expected `object`",)),
        (b"nonsense", ("malformed",)),
        (changed(extra=1), ("unknown field `extra`",)),
        (msgspec.json.encode({"format": 1}), ("missing required field `scenario`",)),
        (changed(format="1"), ("$.format", "int", "str")),
        (changed(format=True), ("$.format",)),
        (changed(format=0), ("format 0", "the first is 1")),
        (changed(format=FORMAT + 1), (f"format {FORMAT + 1} is newer", "upgrade")),
        (changed(format=FORMAT + 1, colour="red"), (f"format {FORMAT + 1} is newer", "upgrade")),
        (changed(format=FORMAT + 1, ranks="many"), (f"format {FORMAT + 1} is newer", "upgrade")),
        (changed(scenario=3), ("$.scenario", "str", "int")),
        (changed(ranks=0), ("$.ranks", ">= 1")),
        (changed(ranks=65), ("$.ranks", "<= 64")),
        (changed(ranks=2.5), ("$.ranks", "int")),
        (changed(params=[]), ("$.params",)),
        (changed(params={"count": 0}), ("$.params", "count", ">= 1")),
        (changed(params={"count": "4"}), ("$.params", "count", "int", "str")),
        (changed(params={"cuont": 4}), ("$.params", "cuont")),
        (changed(bug=3), ("$.bug",)),
        (changed(visibility={"delivery": "lazy"}), ("$.visibility.delivery", "lazy")),
        (changed(visibility={"torn": 5}), ("$.visibility.torn", "5")),
        (changed(visibility={"lines": 1}), ("$.visibility.lines",)),
        (
            changed(faults=[{"fault": "off_bye"}]),
            ("$.faults[0].fault", "off_bye", "did you mean 'off_by'"),
        ),
        (changed(faults=[{}]), ("$.faults[0].fault", "None")),
        (
            changed(faults=[{"fault": "Plain"}, {"fault": "off_by", "by": "x"}]),
            ("$.faults[1]", "$.by", "off_by"),
        ),
        (changed(faults=[{"fault": "off_by", "bye": 1}]), ("$.faults[0]", "bye")),
        (changed(faults=[{"fault": "off_by", "nth": -2}]), ("$.faults[0]", "$.nth", ">= -1")),
        (changed(faults=[{"fault": "off_by", "rank": 2}]), ("$.faults[0].rank", "0..1")),
        (changed(faults=[{"fault": "off_by", "rank": 64}]), ("$.faults[0]", "$.rank")),
        (changed(schedule=[{"kind": "hold"}]), ("$.schedule[0]", "missing required field `op`")),
        (changed(schedule=[{"kind": "hold", "op": -1}]), ("$.schedule[0].op", ">= 0")),
        (changed(schedule=[{"kind": "pause", "op": 1}]), ("$.schedule[0].kind", "pause")),
        (
            changed(schedule=[{"kind": "preempt", "at": 1, "op": 1}]),
            ("$.schedule[0]", "unknown field `op`"),
        ),
        (changed(crash={"at": -1}), ("$.crash.at", ">= 0")),
    ],
)
def test_what_is_wrong_names_its_field(data, words):
    with pytest.raises(PlanError) as caught:
        decode(data)
    text = str(caught.value)
    assert text.startswith("plan: ")
    assert "\n" not in text
    for word in words:
        assert word in text, text


def test_the_text_says_what_was_decoded():
    with pytest.raises(PlanError, match=r"^seeds/x.json: "):
        decode_wire(b"{}", "seeds/x.json")


@pytest.mark.parametrize("value", [Hold(3, 2), Preempt(1), Visibility(), Off(by=2), Params()])
def test_values_print_as_the_code_that_makes_them(value):
    known = {found.__name__: found for found in (Hold, Preempt, Visibility, Off, Params)}
    assert eval(repr(value), known) == value


def test_plans_are_values():
    one = Plan(scenario="s", params=Params(), ranks=2, schedule=(Hold(1), Preempt(2)))
    assert one == Plan(scenario="s", params=Params(), ranks=2, schedule=(Hold(1), Preempt(2)))
    assert len({one, one}) == 1
    with pytest.raises(AttributeError):
        one.ranks = 3


@pytest.mark.parametrize("method", ["matches", "rewrite"])
def test_a_fault_says_itself_what_it_does(method):
    with pytest.raises(NotImplementedError):
        getattr(Plain(), method)(None)
