"""What the ladder's scenarios declare: worlds, cards, and references that are right by hand."""

import msgspec
import pytest

from harness import Plan, registry, run
from systems.collectives.rounds import Rounds

# Two ranks with one element, then three with two: values(rank, element) = 1 + rank + 64 * element.
BY_HAND = {
    "hello_rank": ([[[1], [3]]], [[[1, 65], [3, 67], [5, 69]]]),
    "programming_model": ([[[3], [7]]], [[[3, 195], [7, 199], [11, 203]]]),
    "window_buffer": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "barrier": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "remote_load_store": ([[[2], [1]]] * 2, [[[3, 67], [1, 65], [2, 66]]] * 2),
    "put_get": (
        [[[2], [1]]] * 3,
        [[[3, 67], [1, 65], [2, 66]], [[2, 66], [3, 67], [1, 65]], [[3, 67], [1, 65], [2, 66]]],
    ),
    "dynamic_rank_count": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "allreduce_mesh": ([[[3]] * 2], [[[6, 198]] * 3]),
    "two_lanes": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "allreduce_twophase": ([[[3]] * 2], [[[6, 198]] * 3]),
    "allreduce_ring": ([[[3]] * 2], [[[6, 198]] * 3]),
    # 1/2 * 4; 1/2 * 4 * -1/8 and -8 * 1/2 * 4
    "allreduce_builtin": ([[[2]] * 2], [[[-0.25, -16]] * 3]),
    "broadcast": ([[[2]] * 2], [[[2, 66]] * 3]),
    "allgather": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    # Chunk 0 is empty: floor(1 / 2) and floor(2 / 3) are 0.
    "reduce_scatter": ([[[0], [3]]], [[[0, 0], [6, 0], [0, 198]]]),
    "alltoall": (
        [[[1, 2], [65, 66]]],
        [[
            [1, 65, 2, 66, 3, 67],
            [129, 193, 130, 194, 131, 195],
            [257, 321, 258, 322, 259, 323],
        ]],
    ),
    # Counts by source and target: 1 0, 0 1; then 2 1 0, 1 0 2, 0 2 1.
    "alltoallv": (
        [[[1, 0], [2, 0]]],
        [[[1, 65, 2, 0, 0, 0], [129, 3, 67, 0, 0, 0], [66, 130, 131, 0, 0, 0]]],
    ),
    "credit_barrier": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "cache_lines": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "dissemination": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "pipeline": ([[[2], [1]]], [[[3, 67], [1, 65], [2, 66]]]),
    # Ranks 0 and 1, then 1 alone; ranks 0 and 2, then 1 and 2.
    "groups": (
        [[[1, 2, 0, 0], [1, 2, 2, 0]]],
        [[
            [1, 65, 3, 67, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 2, 66, 3, 67, 0, 0],
            [1, 65, 3, 67, 0, 0, 2, 66, 3, 67, 0, 0],
        ]],
    ),
    "scratch": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "stages": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "domain": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    # Room for 0 and 1 requests; for 1, 2 and 1.
    "admission": ([[[0]] * 2], [[[1, 0]] * 3]),
    "shards": (
        [[[1, 2, 3, 65, 66, 67]] * 2],
        [[[
            1, 65, 2, 66, 3, 67, 129, 193, 130, 194, 131, 195, 257, 321, 258, 322, 259, 323,
        ]] * 3],
    ),
    "far_offsets": ([[[1, 2]] * 2], [[[1, 65, 2, 66, 3, 67]] * 3]),
    "channels": ([[[2], [1]]], [[[3, 67], [1, 65], [2, 66]]]),
    # The root is rank 1. The sums are 1 + 2 + 2 * 2 and 6 + 3 * 2, 198 + 3 * 66.
    "together": ([[[8, 9]] * 2], [[[13, 461, 14, 462, 15, 463]] * 3]),
}


def observed(rung: str, ranks: int, n: int) -> list[list[list[float]]]:
    """The rows by rank of each label, in the order in which the host returns the labels."""
    scenario = registry.find(f"collectives.{rung}")
    plan = Plan(scenario=scenario.name, params=scenario.params(sizes=(n,)), ranks=ranks)
    return [[row.tolist() for row in rows] for rows in run(plan).run.observed.values()]


@pytest.mark.parametrize("rung", BY_HAND)
def test_results_are_those_worked_out_by_hand(rung):
    two, three = BY_HAND[rung]
    assert observed(rung, 2, 1) == two
    assert observed(rung, 3, 2) == three


@pytest.mark.parametrize("rung", BY_HAND)
def test_the_reference_gives_the_same(rung):
    scenario = registry.find(f"collectives.{rung}")
    for ranks, n, wanted in ((2, 1, BY_HAND[rung][0]), (3, 2, BY_HAND[rung][1])):
        given = scenario.reference(scenario.params(sizes=(n,)), ranks)
        assert [[row.tolist() for row in rows] for rows in given.values()] == wanted


def test_some_worlds_run_on_cards_that_are_no_ranks():
    cards = {
        name: list(scenario.device_ids(3))
        for name, scenario in registry.scenarios().items()
        if name.startswith("collectives.") and scenario.device_ids
    }
    assert len(cards) >= 2
    assert all(ids == [4, 5, 6] for ids in cards.values())


@pytest.mark.parametrize("sizes", [(), (0,), (65,), (1, 1, 1, 1)], ids=str)
def test_sizes_outside_their_bounds_do_not_decode(sizes):
    with pytest.raises(msgspec.ValidationError, match="sizes"):
        msgspec.convert({"sizes": sizes}, Rounds)
