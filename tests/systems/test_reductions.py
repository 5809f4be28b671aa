"""What rungs 9 to 12 take beyond sizes: chunks, algorithms, reductions, element types, roots."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Hold, Plan, Preempt, registry, run, values
from harness.finding import Verdict
from harness.strategy import struct_values
from systems.collectives.allreduce_builtin import (
    DTYPE,
    EXPONENTS,
    Reductions,
    epoch_of,
    inputs,
    reduced,
)
from systems.collectives.allreduce_twophase import chunk
from systems.collectives.broadcast import Broadcasts

WORLDS = range(1, 9)
worlds = pytest.mark.parametrize("ranks", WORLDS)
deviations = st.lists(
    st.one_of(
        st.builds(Hold, op=st.integers(0, 120), until=st.integers(0, 40)),
        st.builds(Preempt, at=st.integers(0, 300), to=st.integers(0, 7)),
    ),
    max_size=12,
)
drawn = settings(max_examples=60, derandomize=True, deadline=None, database=None)


def assert_right(rung, params, ranks, schedule=()):
    plan = Plan(
        scenario=f"collectives.{rung}", params=params, ranks=ranks, schedule=tuple(schedule)
    )
    outcome = run(plan, races=not schedule)
    record = outcome.run
    assert record.observed.keys() == record.expected.keys()
    for label, wanted in record.expected.items():
        for seen, due in zip(record.observed[label], wanted, strict=True):
            assert seen.dtype == due.dtype
            assert torch.equal(seen, due), label
    assert outcome.findings == ()
    assert outcome.verdict == Verdict.PASS


@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 33])
def test_chunks_cover_the_row_and_differ_by_one_at_most(n, size):
    chunks = [chunk(n, size, index) for index in range(size)]
    assert [i for start, count in chunks for i in range(start, start + count)] == list(range(n))
    counts = [count for _, count in chunks]
    assert max(counts) - min(counts) <= 1


@worlds
@pytest.mark.parametrize("algorithm", ["mesh", "ring"])
@pytest.mark.parametrize("element", DTYPE)
def test_every_reduction_of_every_element_type_by_either_algorithm(algorithm, element, ranks):
    params = Reductions(
        sizes=(5, 9, 1, 6),
        algorithms=(algorithm,),
        ops=("sum", "max", "min", "prod"),
        dtypes=(element,),
    )
    assert_right("allreduce_builtin", params, ranks)


@drawn
@given(params=struct_values(Reductions), ranks=st.integers(1, 8), schedule=deviations)
def test_calls_of_all_kinds_follow_each_other(params, ranks, schedule):
    assert_right("allreduce_builtin", params, ranks, schedule)


def test_the_first_call_reduces_what_was_worked_out_by_hand():
    for algorithm, (op, due) in product(
        ("mesh", "ring"), {"sum": 6, "max": -1, "min": 1}.items()
    ):
        params = Reductions(sizes=(1,), algorithms=(algorithm,), ops=(op,), dtypes=("int32",))
        plan = Plan(scenario="collectives.allreduce_builtin", params=params, ranks=3)
        seen = run(plan).run.observed[f"{op} 0"]
        assert [row.tolist() for row in seen] == [[due]] * 3


@pytest.mark.parametrize("element", DTYPE)
def test_products_are_exact_and_miss_no_factor_unseen(element):
    """In float64, far from any rounding, each product is what the element type holds."""
    assert 0 not in EXPONENTS[element]
    for round in range(4):
        rows = inputs(8, 64, round, "prod", element)
        assert (rows.double().abs().log2() != 0).all()
        assert torch.equal(reduced(rows, "prod").double(), rows.double().prod(0))
        for order in (rows.flip(0), rows.roll(3, 0)):
            assert torch.equal(reduced(order, "prod"), reduced(rows, "prod"))
    assert not torch.equal(inputs(8, 64, 0, "prod", element), inputs(8, 64, 1, "prod", element))


@pytest.mark.parametrize("element", DTYPE)
def test_sums_are_exact(element):
    for round in range(4):
        rows = inputs(8, 64, round, "sum", element)
        assert torch.equal(rows[2], values(2, 64, round, DTYPE[element]))
        assert torch.equal(reduced(rows, "sum").double(), rows.double().sum(0))


def test_an_epoch_counts_the_calls_of_its_own_algorithm():
    params = Reductions(sizes=(1, 1, 1, 1), algorithms=("mesh", "ring"))
    assert [epoch_of(params, round) for round in range(4)] == [0, 0, 1, 1]
    params = Reductions(sizes=(1, 1, 1, 1), algorithms=("ring",))
    assert [epoch_of(params, round) for round in range(4)] == [0, 1, 2, 3]


@worlds
@pytest.mark.parametrize("root", range(8))
def test_a_broadcast_from_any_root(root, ranks):
    params = Broadcasts(sizes=(4, 7), roots=(root,))
    assert_right("broadcast", params, ranks)
    expected = registry.find("collectives.broadcast").reference(params, ranks)
    assert expected["row 1"][0].tolist() == values(root % ranks, 7, 1).tolist()


@drawn
@given(params=struct_values(Broadcasts), ranks=st.integers(1, 8), schedule=deviations)
def test_roots_may_change_from_call_to_call(params, ranks, schedule):
    assert_right("broadcast", params, ranks, schedule)
