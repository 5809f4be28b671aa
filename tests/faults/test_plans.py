"""Faults in plans: JSON both ways, and one clear error for what is wrong in them."""

import json
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from harness import Plan, registry
from harness.errors import PlanError
from harness.plan import decode_wire, encode, from_wire
from harness.scenario import NoParams

FAULTS = registry.faults()


def decoded(data):
    return from_wire(decode_wire(data), NoParams, FAULTS)


def plan_with(*faults):
    return Plan(scenario="any", params=NoParams(), ranks=8, faults=faults)


def variants(fault):
    """The fault with its defaults, and with every field of its own at another value."""
    own = {}
    for field in msgspec.structs.fields(fault):
        if get_origin(field.type) is Literal:
            own[field.name] = next(v for v in get_args(field.type) if v != field.default)
        elif isinstance(field.default, str):
            own[field.name] = "text"
        else:
            own[field.name] = (field.default or 0) + 3
    return fault(), fault(**own)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_goes_to_json_and_back(name):
    for fault in variants(FAULTS[name]):
        plan = plan_with(fault)
        data = encode(plan)
        assert json.loads(data)["faults"][0]["fault"] == name
        assert decoded(data) == plan
        assert encode(decoded(data)) == data


def test_several_faults_keep_their_order():
    plan = plan_with(*(fault(rank=1) for fault in FAULTS.values()))
    assert decoded(encode(plan)) == plan


def edited(name, **changes):
    wire = json.loads(encode(plan_with(FAULTS[name](rank=1))))
    wire["faults"][0].update(changes)
    return json.dumps(wire)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "unknown field `colour`"),
        ({"nth": -2}, "`int` >= -1 - at `$.nth`"),
        ({"nth": 1.5}, "Expected `int`, got `float` - at `$.nth`"),
        ({"nth": "1"}, "Expected `int`, got `str` - at `$.nth`"),
        ({"rank": 64}, "at `$.rank`"),
        ({"rank": 8}, "$.faults[0].rank: 8 is outside 0..7"),
    ],
    ids=["unknown-field", "negative", "float", "text", "no-such-rank", "rank-outside-world"],
)
def test_a_wrong_field_is_named(name, changes, message):
    with pytest.raises(PlanError) as error:
        decoded(edited(name, **changes))
    assert message in str(error.value)
    assert "$.faults[0]" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("threshold_off_by_one", "delta", 0),
        ("offset_off_by_one", "delta", 2),
        ("misaligned_base", "nbytes", 0),
        ("misaligned_base", "nbytes", 65),
    ],
)
def test_a_value_out_of_range_is_named(name, field, value):
    with pytest.raises(PlanError, match=rf"\$\.faults\[0\] \({name}\).*\$\.{field}"):
        decoded(edited(name, **{field: value}))


def test_an_unknown_fault_offers_the_nearest():
    wire = json.loads(encode(plan_with(FAULTS["dropped_notify"]())))
    wire["faults"][0]["fault"] = "droped_notify"
    with pytest.raises(PlanError, match="did you mean 'dropped_notify'"):
        decoded(json.dumps(wire))


def test_families_are_told_apart():
    families = {name: fault.family for name, fault in FAULTS.items()}
    assert families["crash"] == "environment"
    assert families["dropped_notify"] == "bug"
    assert "family" not in json.loads(encode(plan_with(FAULTS["crash"]())))["faults"][0]


def test_annotations_resolve():
    for fault in FAULTS.values():
        assert "rank" in get_type_hints(fault)
