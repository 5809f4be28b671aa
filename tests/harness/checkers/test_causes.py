"""Why a read came too early or too late: each cause from a program that has it, proven by the
record."""

from __future__ import annotations

import pytest
import torch

from harness import Hold, scenario, values
from harness.diagnosis.table import BECAUSE, LIKELY, likely

F32, INT = torch.float32, torch.int32


def left(size: int) -> list[torch.Tensor]:
    return [values((r - 1) % size, 2) for r in range(size)]


def because(judge, program, ranks, *schedule):
    finding = judge(program, ranks, *schedule).findings[0]
    cause = next(name for name, row in BECAUSE.items() if row == (finding.cause, finding.remedy))
    return cause, finding, "\n".join(finding.evidence)


@scenario(reference=left, ranks=(1, 8))
def unfenced(rank) -> torch.Tensor:
    data, cell = rank.window("data", 2, F32), rank.window("sig", 1, INT)
    rank.put(data, (rank.index + 1) % rank.size, values(rank.index, 2))
    rank.notify(cell, (rank.index + 1) % rank.size, 0, 1)
    rank.wait(cell, 0, 1)
    return rank.load(data, 0, 2)


def test_a_notify_that_overtook_its_put_is_cited_with_it(judge):
    cause, finding, text = because(judge, unfenced, 2, Hold(0))
    assert cause == "overtaken"
    assert "rank 0's notify #1 at" in text
    assert "ahead of rank 0's put #0 at" in text
    assert "no fence between them" in text
    assert finding.rank == 1


@scenario(reference=left, ranks=(1, 8))
def one_counter_for_two_chunks(rank) -> torch.Tensor:
    data, cell = rank.window("data", 2, F32), rank.window("sig", 1, INT)
    own = values(rank.index, 2)
    for chunk in range(2):
        rank.put_signal(data, (rank.index + 1) % rank.size, own[chunk : chunk + 1], chunk, cell, 0, 1)
    chunks = []
    for chunk in range(2):
        rank.wait(cell, 0, chunk + 1)
        chunks.append(rank.load(data, chunk, 1))
    return torch.cat(chunks)


def test_the_signal_of_another_put_is_no_notify_without_a_fence(judge):
    """A put_signal orders its own signal, which is what the remedy for a notify would recommend."""
    cause, finding, text = because(judge, one_counter_for_two_chunks, 2, Hold(0))
    assert cause == "announced_by_another"
    assert "ahead of rank 0's put_signal #0 at" in text
    assert finding.rank == 1


@scenario(reference=lambda size: [values(0, 2)] * size, ranks=(3, 3))
def through_a_third(rank) -> torch.Tensor:
    """Rank 0 puts to rank 1 and tells rank 2, which tells rank 1: a fence does not cover that."""
    data, cell = rank.window("data", 2, F32), rank.window("sig", 1, INT)
    if rank.index == 0:
        rank.put(data, 1, values(0, 2))
        rank.fence()
        rank.notify(cell, 2, 0, 1)
    else:
        rank.wait(cell, 0, 1)
    if rank.index == 2:
        rank.notify(cell, 1, 0, 1)
    return rank.load(data, 0, 2) if rank.index == 1 else values(0, 2)


def test_a_fenced_notify_of_another_rank_is_not_blamed(judge):
    cause, _, text = because(judge, through_a_third, 3, Hold(0))
    assert cause == "in_flight"
    assert "the last thing that it waited for: rank 1's wait at" in text
    assert "no fence between" not in text  # there is one


@scenario(reference=left, ranks=(1, 8))
def sync_for_barrier(rank) -> torch.Tensor:
    data = rank.window("data", 2, F32)
    rank.put(data, (rank.index + 1) % rank.size, values(rank.index, 2))
    rank.sync()
    return rank.load(data, 0, 2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_sync_completes_nothing(judge, ranks):
    cause, _, text = because(judge, sync_for_barrier, ranks, Hold(0))
    assert cause == "met_in_flight"
    assert "'s sync at" in text
    assert "came with the operation in flight" in text


@scenario(reference=lambda size: [values(r, 2) for r in range(size)], ranks=(1, 8))
def own_put(rank) -> torch.Tensor:
    data = rank.window("data", 2, F32)
    rank.put(data, rank.index, values(rank.index, 2))
    return rank.load(data, 0, 2)


def test_an_operation_of_the_reader_itself(judge):
    cause, _, text = because(judge, own_put, 1, Hold(0))
    assert cause == "own_in_flight"
    assert "the last thing that it waited for: rank 0's window at" in text


@scenario(reference=left, ranks=(1, 8))
def get_unfinished(rank) -> torch.Tensor:
    data, landing = rank.window("data", 2, F32), rank.buffer(2, F32)
    rank.store(data, values(rank.index, 2))
    rank.barrier()
    rank.get_nbi(landing, (rank.index - 1) % rank.size, data)
    got = rank.load(landing, 0, 2)
    rank.barrier()
    return got


def test_a_get_that_has_not_landed(judge):
    cause, finding, text = because(judge, get_unfinished, 2, Hold(0), Hold(1))
    assert cause == "get_in_flight"
    assert "landed at event" in text
    assert "had landed" in finding.message


@scenario(reference=left, ranks=(1, 8))
def unordered(rank) -> torch.Tensor:
    data, cell = rank.window("data", 2, F32), rank.window("sig", 1, INT)
    rank.wait(cell, 0, 0)
    rank.store(data, values(rank.index, 2))
    return rank.remote_load(data, (rank.index - 1) % rank.size, 0, 2)


def test_a_write_that_had_not_begun_tells_what_the_reader_had_waited_for(judge):
    cause, _, text = because(judge, unordered, 2)
    assert cause == "not_begun"
    assert "which saw 'sig'[0] = 0" in text


@scenario(reference=left, ranks=(1, 8))
def reused(rank) -> torch.Tensor:
    data = rank.window("data", 2, F32)
    rank.store(data, values(rank.index, 2))
    rank.barrier()
    if rank.index == 0:
        rank.store(data, values(rank.index, 2, 1))
    return rank.remote_load(data, (rank.index - 1) % rank.size, 0, 2)


def test_memory_that_was_written_again_before_it_was_read(judge):
    cause, finding, text = because(judge, reused, 2)
    assert cause == "reused"
    assert finding.rank == 1
    assert "missing edge: the read before the write that replaced what was due" in text


def test_the_tables_have_a_cause_and_a_remedy_in_each_row():
    for name, row in [*BECAUSE.items(), *LIKELY.items()]:
        assert all(row), name
    assert likely("integrity/wrong_value", "reused") == BECAUSE["reused"]
    assert likely("integrity/wrong_value") == LIKELY["integrity/wrong_value"]


@scenario(reference=lambda size: [values(1, 2)] + [None] * (size - 1), ranks=(3, 8))
def two_write_one_place(rank) -> torch.Tensor | None:
    data, cell = rank.window("data", 2, F32), rank.window("sig", 2, INT)
    if rank.index in (1, 2):
        if rank.index == 2:
            rank.wait(cell, 1, 1)
        rank.put(data, 0, values(rank.index, 2))
        rank.quiet()
        rank.notify(cell, 0, 0, 1)
        if rank.index == 1:
            rank.notify(cell, 2, 1, 1)
    if rank.index:
        return None
    rank.wait(cell, 0, 2)
    return rank.load(data, 0, 2)


def test_two_ranks_that_write_one_place_are_named(judge):
    cause, finding, text = because(judge, two_write_one_place, 3)
    assert cause == "two_writers"
    assert "rank 2's put #" in text
    assert "rank 1's put #" in text
    assert "had written the same place at event" in text
    assert finding.kind == "wrong_value"


@scenario(reference=lambda size: [torch.tensor([5], dtype=INT)] + [None] * (size - 1), ranks=(2, 8))
def notify_hits_data(rank) -> torch.Tensor | None:
    memory = rank.window("memory", 4, INT)
    if rank.index == 1:
        rank.put(memory, 0, torch.tensor([5], dtype=INT), 0)
        rank.fence()
        rank.notify(memory, 0, 0, 1)
        rank.fence()
        rank.notify(memory, 0, 1, 1)
    if rank.index:
        return None
    rank.wait(memory, 1, 1)
    return rank.load(memory, 0, 1)


def test_a_notify_into_data_is_named(judge):
    cause, _, text = because(judge, notify_hits_data, 2)
    assert cause == "signal_over_data"
    assert "rank 1's notify #1 at" in text
