"""Rows N to S of the delivery table: what a core's cache makes of stores, Sets and loads."""

from __future__ import annotations

import itertools

import pytest
import torch

from harness import Hold, NotifyOp, Preempt, Visibility
from harness.fabric.execute import Job, execute

DELAYED = Visibility(delayed=True)
LINES = Visibility(lines=True)
STALE = Visibility(stale=True)
ALL = Visibility(lines=True, stale=True)
ON = pytest.mark.parametrize("caches", [DELAYED, LINES, STALE, ALL], ids=repr)
ONE = torch.ones(1)


def held(operations):
    """The default run, every set of operations held to the end or for a while, every preempt."""
    for count in range(operations + 1):
        for ops in itertools.combinations(range(operations), count):
            for until in (0, 1, 2, 3) if ops else (0,):
                yield tuple(Hold(op, until) for op in ops)
    for at, to in itertools.product(range(16), range(3)):
        yield (Preempt(at, to),)
        yield (*(Hold(op) for op in range(operations)), Preempt(at, to))


def kinds(run, *wanted):
    return [event.kind for event in run.events if event.kind in wanted]


def stored_then_read(signal):
    """Rank 0 stores, does `signal`, and waits; rank 1 reads rank 0's memory once it heard of it."""

    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.store(window, ONE)
            mine = rank.load(window, 0, 1).item()
            signal(rank, window, cells)
            return mine
        rank.wait(cells, 0, 1)
        return rank.remote_load(window, 0, 0, 1).item()

    return program


def plain_notify(rank, window, cells):
    rank.notify(cells, 1, 0, 1)


# N ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caches", [DELAYED, LINES], ids=repr)
def test_row_n_a_store_reaches_memory_by_an_event_of_its_own(go, caches):
    def program(rank):
        window = rank.window("w", 1, torch.float32, init="zero")
        if rank.index == 0:
            rank.store(window, 3.0)
            return rank.load(window, 0, 1).item()
        return rank.remote_load(window, 0, 0, 1).item()

    seen = set()
    for schedule in held(1):
        run = go(program, 2, *schedule, caches=caches)
        assert kinds(run, "store", "store_issue", "deliver") == ["store_issue", "deliver"]
        assert run.results[0] == [3.0], "the lane sees its own store"
        seen.add(run.results[1][0])
    assert seen == {0.0, 3.0}


def test_row_n_stores_to_different_places_come_in_any_order(go):
    def program(rank):
        window = rank.window("w", 64, torch.float32, init="zero")
        rank.store(window, ONE, 0)
        rank.store(window, ONE, 1)

    orders = set()
    for schedule in held(2):
        run = go(program, 1, *schedule, caches=DELAYED)
        orders.add(tuple(event.number for event in run.events if event.kind == "deliver"))
    assert orders == {(0, 1), (1, 0)}


@ON
def test_row_n_concerns_windows_only(go, caches):
    def program(rank):
        buffer = rank.buffer(2, torch.float32)
        rank.store(buffer, 2.0, 0)
        return rank.load(buffer, 0, 1).item()

    run = go(program, 1, caches=caches)
    assert kinds(run, "store", "store_issue", "publish") == ["store"]
    assert run.results == [[2.0]]


# O ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caches", "second"),
    [(DELAYED, (0, torch.full((1,), 2.0))), (LINES, (0, 2.0)), (LINES, (7, 2.0))],
    ids=["bytes", "number", "line"],
)
def test_row_o_a_lane_stores_in_order(go, caches, second):
    at, value = second

    def program(rank):
        window = rank.window("w", 16, torch.float32, init="zero")
        rank.store(window, 1.0)
        rank.store(window, value, at)
        rank.quiet()
        return rank.load(window, 0, 8).tolist()

    for schedule in held(2):
        run = go(program, 1, *schedule, caches=caches)
        assert [event.number for event in run.events if event.kind == "deliver"] == [0, 1], schedule
        assert run.results[0][0][at] == 2.0
        assert sum(run.results[0][0]) == (2.0 if at == 0 else 3.0)


def test_row_o_two_sets_of_a_lane_in_a_line_lose_nothing(go):
    def program(rank):
        cells = rank.window("c", 4, torch.int32)
        if rank.index == 0:
            rank.notify(cells, 1, 0, 5, op=NotifyOp.Set)
            rank.notify(cells, 1, 1, 6, op=NotifyOp.Set)
        else:
            rank.wait(cells, 0, 5)
            rank.wait(cells, 1, 6)

    for schedule in held(2):
        run = go(program, 2, *schedule, caches=LINES)
        assert run.ended == "returned", schedule
        assert run.names[0].final(1)[:8] == bytes([5, 0, 0, 0, 6, 0, 0, 0])


# P ------------------------------------------------------------------------------------------------


def put_signal(rank, window, cells):
    rank.put_signal(window, 1, ONE, 1, cells, 0, 1)


def fence(rank, window, cells):
    rank.fence()
    rank.notify(cells, 1, 0, 1)


@pytest.mark.parametrize("signal", [plain_notify, put_signal, fence])
@ON
def test_row_p_what_a_notify_tells_of_is_in_memory(go, caches, signal):
    for schedule in held(3):
        run = go(stored_then_read(signal), 2, *schedule, caches=caches)
        assert run.results == [[1.0], [1.0]], schedule


@pytest.mark.parametrize("meet", ["sync", "barrier", "window"])
@ON
def test_row_p_what_is_stored_before_a_meeting_is_in_memory(go, caches, meet):
    def program(rank):
        window = rank.window("w", 1, torch.float32, init="zero")
        rank.store(window, 1.0 + rank.index)
        if meet == "window":
            rank.window("v", 1, torch.float32)
        else:
            getattr(rank, meet)()
        return rank.remote_load(window, 1 - rank.index, 0, 1).item()

    for schedule in held(2):
        assert go(program, 2, *schedule, caches=caches).results == [[2.0], [1.0]], schedule


@pytest.mark.parametrize("how", ["put", "put_nbi", "put_signal", "remote_load", "get"])
@ON
def test_row_p_operations_on_ones_own_memory_see_ones_own_stores(go, caches, how):
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        source = window.view(1, torch.float32)
        cells = rank.window("c", 1, torch.int32)
        rank.store(window, 7.0)
        if how == "remote_load":
            return rank.remote_load(window, 0, 0, 1).item()
        if how == "get":
            into = rank.buffer(1, torch.float32)
            rank.get(into, 0, window)
            return rank.load(into, 0, 1).item()
        if how == "put_signal":
            rank.put_signal(window, 0, source, 1, cells, 0, 1)
        else:
            getattr(rank, how)(window, 0, source, 1)
        rank.quiet()
        return rank.load(window, 1, 1).item()

    for schedule in held(2):
        assert go(program, 1, *schedule, caches=caches).results == [[7.0]], schedule


def test_row_p_an_own_store_to_an_awaited_cell_counts(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        rank.store(cells, 4)
        rank.wait(cells, 0, 4)

    for schedule in held(1):
        assert go(program, 1, *schedule, caches=ALL).ended == "returned", schedule


def test_row_p_costs_an_event_only_where_something_was_stored(go):
    run = go(stored_then_read(plain_notify), 2, caches=DELAYED)
    assert kinds(run, "publish", "notify") == ["publish", "notify"]
    run = go(stored_then_read(fence), 2, caches=DELAYED)
    assert kinds(run, "publish", "notify") == ["publish", "notify"]


# Q ------------------------------------------------------------------------------------------------


def neighbours(first, second, words=16):
    """Ranks 0 and 1 write to cells 0 and 1 of rank 2."""

    def program(rank):
        cells = rank.window("c", words, torch.int32)
        if rank.index < 2:
            (first, second)[rank.index](rank, cells, rank.index)

    return program


def by_set(rank, cells, at):
    rank.notify(cells, 2, at, 1, op=NotifyOp.Set)


def by_signal(rank, cells, at):
    data = rank.buffer(0, torch.int32)
    rank.put_signal(cells, 2, data, 0, cells, at, 1, op=NotifyOp.Set)


def by_add(rank, cells, at):
    rank.notify(cells, 2, at, 1)


def by_put(rank, cells, at):
    rank.put(cells, 2, torch.ones(1, dtype=torch.int32), at)


def by_remote_store(rank, cells, at):
    rank.remote_store(cells, 2, torch.ones(1, dtype=torch.int32), at)


@pytest.mark.parametrize("other", [by_set, by_add, by_put, by_remote_store])
@pytest.mark.parametrize("writer", [by_set, by_signal])
def test_row_q_a_set_writes_its_neighbours_old_values_back(go, writer, other):
    finals = set()
    for schedule in held(3):
        run = go(neighbours(writer, other), 3, *schedule, caches=LINES)
        final = run.names[0].final(2)
        finals.add((final[0], final[4]))
        lost = (final[0], final[4]) != (1, 1)
        assert ("write_back" in kinds(run, "write_back")) == lost, schedule
    assert (1, 0) in finals
    assert (1, 1) in finals
    assert ((0, 1) in finals) == (other is by_set), "only a Set loses what a Set wrote"


@pytest.mark.parametrize("other", [by_add, by_put, by_remote_store])
def test_row_q_memory_does_the_others_by_bytes(go, other):
    for schedule in held(2):
        final = go(neighbours(other, other), 3, *schedule, caches=LINES).names[0].final(2)
        assert (final[0], final[4]) == (1, 1)


def test_row_q_another_line_is_left_alone(go):
    def far(rank, cells, at):
        by_set(rank, cells, 16 * at)

    for schedule in held(2):
        final = go(neighbours(far, far, 32), 3, *schedule, caches=LINES).names[0].final(2)
        assert (final[0], final[64]) == (1, 1), schedule


@pytest.mark.parametrize(("value", "losable"), [(2.0, True), (torch.full((1,), 2.0), False)])
def test_row_q_a_number_is_stored_with_its_line_and_a_tensor_by_bytes(go, value, losable):
    def program(rank):
        window = rank.window("w", 5, torch.float32, init="zero")  # an end within a line
        if rank.index == 0:
            rank.store(window, value, 4)
        else:
            rank.put(window, 0, ONE, 0)

    finals = set()
    for schedule in held(2):
        run = go(program, 2, *schedule, caches=LINES)
        assert run.guards_intact
        finals.add(torch.frombuffer(bytearray(run.names[0].final(0)), dtype=torch.float32)[0].item())
    assert finals == ({0.0, 1.0} if losable else {1.0})


def test_row_q_a_write_back_may_end_a_wait_and_begin_one(go):
    """Cells that a line takes back: a waiter that was about to go on blocks again."""

    def program(rank):
        cells = rank.window("c", 2, torch.int32)
        if rank.index == 0:
            rank.notify(cells, 2, 0, 1, op=NotifyOp.Set)
        elif rank.index == 1:
            rank.notify(cells, 2, 1, 1, op=NotifyOp.Set)
        else:
            rank.wait(cells, 1, 1)

    ended = {go(program, 3, *schedule, caches=LINES).ended for schedule in held(2)}
    assert ended == {"returned", "blocked"}


# R and S ------------------------------------------------------------------------------------------


def read_again(meet):
    """Rank 1 loads, rank 0 puts, rank 1 does `meet`, loads again, and looks at memory."""

    def program(rank):
        window = rank.window("w", 16, torch.float32, init="zero")
        cells = rank.window("c", 2, torch.int32)
        if rank.index == 0:
            rank.wait(cells, 0, 1)
            rank.put(window, 1, ONE, 3)
            rank.fence()
            rank.notify(cells, 1, 0, 1)
            return meet(rank, window, cells)
        rank.load(window, 0, 1)
        rank.notify(cells, 0, 0, 1)
        while rank.remote_load(cells, 1, 0, 1).item() < 1:
            pass
        meet(rank, window, cells)
        return rank.load(window, 3, 1).item(), rank.remote_load(window, 1, 3, 1).item()

    return program


def nothing(rank, window, cells):
    """No invalidate."""


def waiting(rank, window, cells):
    if rank.index:
        rank.wait(cells, 0, 1)


def getting(rank, window, cells):
    if rank.index:
        rank.get(window.view(1, torch.float32), 0, window, 1)


MEETINGS = {
    "wait": waiting, "get": getting, "quiet": lambda rank, window, cells: rank.quiet(),
    "sync": lambda rank, window, cells: rank.sync(),
    "window": lambda rank, window, cells: rank.window("v", 1, torch.int32),
}


@pytest.mark.parametrize("caches", [STALE, ALL], ids=repr)
def test_row_r_a_load_sees_the_line_as_it_was_fetched(go, caches):
    run = go(read_again(nothing), 2, caches=caches)
    assert run.results[1] == [(0.0, 1.0)]
    ((read, fetch),) = run.fetched.items()
    assert [run.events[at].kind for at in (read, fetch)] == ["load", "load"]
    assert run.events[read].value == bytes(4), "the record holds what the program saw"


@pytest.mark.parametrize("caches", [Visibility(), DELAYED, LINES], ids=repr)
def test_row_r_only_where_lines_may_be_stale(go, caches):
    run = go(read_again(nothing), 2, caches=caches if caches.caches else None)
    assert run.results[1] == [(1.0, 1.0)]
    assert run.fetched == {}


@pytest.mark.parametrize("meet", MEETINGS)
def test_row_s_what_invalidates(go, meet):
    assert go(read_again(MEETINGS[meet]), 2, caches=ALL).results[1] == [(1.0, 1.0)]


def test_row_s_a_fence_drops_nothing(go):
    run = go(read_again(lambda rank, window, cells: rank.fence()), 2, caches=STALE)
    assert run.results[1] == [(0.0, 1.0)]


@pytest.mark.parametrize("caches", [STALE, ALL], ids=repr)
def test_row_r_a_copy_has_ones_own_stores(go, caches):
    def program(rank):
        window = rank.window("w", 16, torch.float32, init="zero")
        rank.load(window, 0, 4)
        rank.store(window, 5.0, 2)
        rank.store(window, torch.full((2,), 6.0), 3)
        return rank.load(window, 0, 16).tolist()

    for schedule in held(2):
        assert go(program, 1, *schedule, caches=caches).results == [[[0, 0, 5, 6, 6] + [0] * 11]]


def test_row_r_a_poll_ends(go):
    """No line stays in a cache for ever."""

    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index:
            rank.notify(cells, 0, 0, 1)
            return
        while rank.load(cells, 0, 1).item() < 1:
            pass

    for schedule in held(1):
        assert go(program, 2, *schedule, caches=STALE).ended == "returned", schedule


def test_lanes_of_a_rank_have_caches_of_their_own(go):
    def program(rank, window):
        if rank.lane == 0:
            rank.store(window, 1.0)
        return rank.load(window, 0, 1).item()

    def host(world):
        world.dispatch(program, world.alloc(1, torch.float32, init="zero"), device=0, lanes=2)

    seen = set()
    for schedule in held(1):
        run = execute(Job(1, host, schedule=schedule, caches=DELAYED))
        first, second = run.results[0][0]
        assert first == 1.0
        seen.add(second)
    assert seen == {0.0, 1.0}
