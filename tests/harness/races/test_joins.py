"""The order statistic against its definition: what every choice of notifies knows."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.races.joins import guaranteed, joined, shared
from harness.races.known import Known

clocks = st.tuples(
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.builds(Known, st.integers(0, 3), st.integers(0, 15)),
)


def by_definition(known, amounts, need, exact):
    fitting = []
    for count in range(1, len(known) + 1):
        for choice in combinations(range(len(known)), count):
            total = sum(amounts[i] for i in choice)
            if total == need or (total > need and not exact):
                fitting.append(joined([known[i] for i in choice]))
    return shared(fitting) if fitting else None


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(
    data=st.lists(st.tuples(clocks, st.integers(1, 3)), min_size=1, max_size=6),
    need=st.integers(1, 9), exact=st.booleans(), equal=st.booleans(),
)
def test_it_is_what_every_choice_knows(data, need, exact, equal):
    known = [clock for clock, _ in data]
    amounts = [data[0][1] if equal else amount for _, amount in data]
    assert guaranteed(known, amounts, need, exact=exact) == by_definition(known, amounts, need, exact)


def test_no_choice_brings_the_sum():
    assert guaranteed([((1,), Known(1))], [2], 3) is None
    assert guaranteed([((1,), Known(1)), ((2,), Known(2))], [2, 2], 3, exact=True) is None
    assert guaranteed([], [], 1) is None
