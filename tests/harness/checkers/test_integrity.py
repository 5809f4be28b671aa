"""Wrong results: each kind with what the record proves of it, and twins that stay silent."""

from __future__ import annotations

import math

import pytest
import torch

from harness import Hold, Scenario, World, scenario, values
from harness.checkers.results import is_poison, same
from harness.fabric.memory import POISON, filled

F32, INT = torch.float32, torch.int32


def only(outcome, name: str):
    assert [f.name for f in outcome.findings] == [name]
    return outcome.findings[0]


def left(size: int, rounds: int = 1, n: int = 4) -> list[torch.Tensor]:
    return [values((r - 1) % size, n, rounds - 1) for r in range(size)]


def push(rank, rounds: int, n: int, fence: bool) -> torch.Tensor:
    data, cell = rank.window("data", n, F32), rank.window("sig", 1, INT)
    got = None
    for turn in range(rounds):
        peer = (rank.index + 1) % rank.size
        rank.put(data, peer, values(rank.index, n, turn))
        if fence:
            rank.fence()
        rank.notify(cell, peer, 0, 1)
        rank.wait(cell, 0, turn + 1)
        got = rank.load(data, 0, n)
        rank.barrier()
    return got


@scenario(reference=left, ranks=(1, 8))
def no_fence(rank, rounds: int = 1, n: int = 4) -> torch.Tensor:
    return push(rank, rounds, n, fence=False)


@scenario(reference=left, ranks=(1, 8))
def with_fence(rank, rounds: int = 1, n: int = 4) -> torch.Tensor:
    return push(rank, rounds, n, fence=True)


def test_unwritten_memory_names_the_read_and_the_put_in_flight(judge):
    finding = only(judge(no_fence, 2, Hold(0)), "integrity/unwritten_memory")
    text = "\n".join(finding.evidence)
    assert finding.rank == 1
    assert "'result' of rank 1: element 0 is nan, expected 1.0; 4 of 4" in finding.message
    assert "rank 0's put #0" in text
    assert "at the read the operation was in flight" in text
    assert [str(site) for site in finding.sites] == ["push:load#0"]
    outcome = judge(no_fence, 2, Hold(0))
    kinds = [outcome.run.events[index].kind for index in finding.events]
    assert kinds == ["put", "notify", "deliver", "load", "deliver"]
    assert judge(with_fence, 2, Hold(0)).findings == ()


def test_stale_value_is_the_older_round(judge):
    finding = only(judge(no_fence, 2, Hold(4), rounds=2), "integrity/stale_value")
    assert "missing edge: the write before the read" in "\n".join(finding.evidence)
    assert judge(with_fence, 2, Hold(4), rounds=2).findings == ()


def test_large_values_are_judged_by_their_digests(judge):
    finding = only(judge(no_fence, 2, Hold(4), rounds=2, n=200), "integrity/stale_value")
    assert finding.sites


def total(size: int, n: int = 3) -> list[torch.Tensor]:
    return [torch.stack([values(r, n, 1) for r in range(size)]).sum(0)] * size


def mesh(rank, n: int, barrier: bool) -> torch.Tensor:
    box = rank.window("box", (rank.size, n), F32)
    for turn in range(2):
        mine = values(rank.index, n, turn)
        for peer in range(rank.size):
            rank.remote_store(box, peer, mine, rank.index * n)
        if barrier or turn == 0:
            rank.barrier()
        got = rank.load(box, 0, (rank.size, n)).sum(0)
        rank.barrier()
    return got


@scenario(reference=total, ranks=(1, 8))
def mesh_without_barrier(rank, n: int = 3) -> torch.Tensor:
    return mesh(rank, n, barrier=False)


@scenario(reference=total, ranks=(1, 8))
def mesh_with_barrier(rank, n: int = 3) -> torch.Tensor:
    return mesh(rank, n, barrier=True)


def test_stale_summands_are_proven_by_what_the_sum_lacks(judge):
    finding = only(judge(mesh_without_barrier, 4), "integrity/stale_value")
    assert "at the read the write had not begun" in "\n".join(finding.evidence)
    assert judge(mesh_with_barrier, 4).findings == ()


def reused(rank, second_barrier: bool) -> torch.Tensor:
    box, got = rank.window("box", 3, F32), []
    for turn in range(2):
        rank.store(box, values(rank.index, 3, turn))
        rank.barrier()
        got.append(rank.remote_load(box, (rank.index - 1) % rank.size, 0, 3))
        if second_barrier:
            rank.barrier()
    return got[0]


@scenario(reference=lambda size: left(size, 1, 3), ranks=(1, 8))
def reused_early(rank) -> torch.Tensor:
    return reused(rank, second_barrier=False)


@scenario(reference=lambda size: left(size, 1, 3), ranks=(1, 8))
def reused_after_barrier(rank) -> torch.Tensor:
    return reused(rank, second_barrier=True)


def test_a_read_that_came_too_late_names_what_replaced_its_value(judge):
    finding = only(judge(reused_early, 3), "integrity/wrong_value")
    assert "after rank" in finding.message
    assert "'s store at" in finding.message
    assert "missing edge: the read before the write" in "\n".join(finding.evidence)
    assert [str(site) for site in finding.sites] == ["reused:remote_load#0", "reused:store#0"]
    assert judge(reused_after_barrier, 3).findings == ()


@scenario(reference=lambda size: [torch.ones(2)] * size, ranks=(1, 8))
def wrong_value(rank) -> torch.Tensor:
    win = rank.window("w", 2, F32)
    rank.store(win, torch.zeros(2))
    got = rank.load(win, 0, 2)
    rank.store(win, torch.full((2,), 5.0))
    return got if rank.index else torch.ones(2)


def test_a_read_that_does_not_explain_the_result_is_not_blamed(judge):
    finding = only(judge(wrong_value, 3), "integrity/wrong_value")
    assert finding.rank == 1
    assert finding.sites == ()
    assert "rank 2: element 0 is 0.0, expected 1.0" in finding.evidence[0]
    assert judge(wrong_value, 1).findings == ()


@scenario(reference=lambda size: [torch.zeros(size)] * size, ranks=(1, 8))
def wrong_shape(rank) -> torch.Tensor:
    return torch.zeros(2)


@scenario(reference=lambda size: [torch.zeros(1)] * size, ranks=(1, 8))
def returns_nothing(rank) -> None:
    return None


def test_wrong_shape(judge):
    finding = only(judge(wrong_shape, 4), "integrity/wrong_shape")
    assert "given float32 [2], expected float32 [4]" in finding.message
    assert judge(wrong_shape, 2).findings == ()
    assert "given nothing" in only(judge(returns_nothing, 1), "integrity/wrong_shape").message


def test_different_labels_or_counts_are_a_wrong_shape(judge):
    def two(size: int) -> dict[str, list[float]]:
        return {"a": [1.0] * size}

    for given, words in (({"b": [1.0]}, "labels ['b'], expected ['a']"),
                         ({"a": [1.0] * 5}, "given 5 results, expected 2")):
        def host(world: World, _: object, g=given):
            for r in range(world.size):
                world.dispatch(lambda rank: None, device=r)
            return g

        made = Scenario(name="t", host=host, reference=lambda _, size: two(size))
        assert words in only(judge(made, 2), "integrity/wrong_shape").message


@scenario(reference=lambda size: [None] * size, ranks=(1, 8))
def off_the_end(rank) -> None:
    win = rank.window("w", 4, F32).shifted(4 if rank.index == 1 else 0)
    rank.put(win, 0, torch.ones(4))
    rank.barrier()


def test_guard_overwritten_names_the_write(judge):
    finding = only(judge(off_the_end, 2), "integrity/guard_overwritten")
    assert finding.rank == 1
    assert finding.message.startswith("rank 1's put #")
    assert "at byte 16, behind its last byte" in finding.message
    assert "bytes 4..20" in finding.evidence[0]
    assert judge(off_the_end, 1).findings == ()


def unshared(world: World, _: object) -> dict[str, list[torch.Tensor]]:
    out = torch.zeros(world.size)
    world._prepare([out], ["out"], [0] if UNSHARED else [])

    def program(rank, result) -> None:
        rank.store(result, float(rank.index + 1), rank.index)

    for r in range(world.size):
        world.dispatch(program, out, device=r)
    return {"out": [out] * world.size}


UNSHARED = True


def test_stale_private_memory_names_the_host_tensor(judge, monkeypatch):
    made = Scenario(name="t", host=unshared,
                    reference=lambda _, n: {"out": [torch.arange(1.0, n + 1)] * n})
    finding = only(judge(made, 2), "integrity/stale_private_memory")
    assert "private copy of host tensor 'out'" in finding.message


@scenario(reference=lambda size: [torch.ones(1)] * size, ranks=(1, 8))
def blocked_and_wrong(rank) -> torch.Tensor:
    cell = rank.window("sig", 1, INT)
    if rank.index == 1:
        rank.wait(cell, 0, 1)
    return torch.ones(1)


def test_ranks_that_never_returned_are_not_judged(judge):
    only(judge(blocked_and_wrong, 3), "deadlock/missing_notify")


@pytest.mark.parametrize(("given", "expected", "tolerance", "right"), [
    (1.0, 1.0, 0.0, True), (1.0, 1.5, 0.0, False), (1.0, 1.5, 0.5, True),
    (math.nan, math.nan, 0.0, True), (math.nan, 1.0, 1e9, False), (1.0, math.nan, 0.0, False),
    (None, None, 0.0, True), (None, 1.0, 0.0, False), ("a", "a", 0.0, True),
    (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]), 0.0, True),
    (torch.tensor([math.nan, 1.0]), torch.tensor([1.0, math.nan]), 9.0, False),
    (torch.tensor([1.0]), torch.tensor([1.25]), 0.25, True),
    (torch.tensor([1]), torch.tensor([2]), 0.0, False),
    (torch.tensor([1]), torch.tensor([2]), 1.0, True),
    (torch.tensor([math.inf]), torch.tensor([1.0]), 9.0, False),
    (torch.ones(2), torch.ones(2, dtype=torch.float64), 9.0, False),
    ([1, torch.ones(1)], (1, torch.ones(1)), 0.0, True), ([1], [1, 2], 0.0, False),
    (torch.ones(1), 1.0, 0.0, False),
])
def test_same(given, expected, tolerance, right):
    assert same(given, expected, tolerance) is right


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16,
                                   torch.int32, torch.int64, torch.int16])
def test_poison_is_recognised_in_every_dtype_of_two_bytes_or_more(dtype):
    size = torch.empty((), dtype=dtype).element_size()
    memory = filled(POISON, 16)
    assert all(is_poison(memory[i : i + size]) for i in range(0, 16, size))
    assert not is_poison(bytes(size))
