"""The table in fabric/memory.py, row by row: each order holds under every schedule tried, and what
a row leaves open really happens under some of them."""

from __future__ import annotations

import itertools

import pytest
import torch

from harness.plan import Hold, Preempt
from harness.rank import AtomicType, NotifyOp

ONE = torch.ones(1)


def schedules(operations):
    """The default run, every set of held operations (to the end, for a while), every preempt."""
    for count in range(operations + 1):
        for held in itertools.combinations(range(operations), count):
            for until in (0, 1, 3):
                yield tuple(Hold(op, until) for op in held)
    for at, to in itertools.product(range(14), range(3)):
        yield (Preempt(at, to),)
        yield (*(Hold(op) for op in range(operations)), Preempt(at, to))


def delivered(run):
    """The numbers of the operations in the order of their deliveries."""
    return [event.number for event in run.events if event.kind == "deliver"]


def at(run, kind, number=None):
    """The index of the first event of this kind (and operation)."""
    return next(
        index
        for index, event in enumerate(run.events)
        if event.kind == kind and number in (None, event.number)
    )


def put(rank, window, cells):
    rank.put(window, 1, ONE)


def remote_store(rank, window, cells):
    rank.remote_store(window, 1, ONE)


def notify(rank, window, cells):
    rank.notify(cells, 1, 0, 1)


ISSUES = {"put": put, "remote_store": remote_store, "notify": notify}


def twice(first, second, *, fenced, targets=(1, 1)):
    """A program in which rank 0 issues two operations."""

    def program(rank):
        window = rank.window("w", 4, torch.float32)
        cells = rank.window("c", 4, torch.int32)
        if rank.index == 0:
            first(rank, window, cells, targets[0])
            if fenced:
                rank.fence()
            second(rank, window, cells, targets[1])
        else:
            for _ in range(3):
                rank.load(window, 0, 1)

    return program


PUT = {
    "put": lambda rank, window, cells, to: rank.put(window, to, ONE),
    "put_nbi": lambda rank, window, cells, to: rank.put_nbi(
        window, to, window.view(1, torch.float32)
    ),
    "remote_store": lambda rank, window, cells, to: rank.remote_store(window, to, ONE),
    "notify": lambda rank, window, cells, to: rank.notify(cells, to, 0, 1),
    "set": lambda rank, window, cells, to: rank.notify(cells, to, 0, 1, op=NotifyOp.Set),
    "atomic": lambda rank, window, cells, to: rank.put(window, to, ONE, atomic=AtomicType.Add),
}


@pytest.mark.parametrize("name", ISSUES)
def test_row_a_an_operation_is_delivered_by_an_event_of_its_own_at_any_later_time(go, name):
    def program(rank):
        window = rank.window("w", 1, torch.float32)
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            ISSUES[name](rank, window, cells)
            for _ in range(4):
                rank.store(window, 0.0)

    distances = set()
    for schedule in ((), *((Hold(0, until),) for until in range(6))):
        run = go(program, 2, *schedule)
        issued, arrived = at(run, name, 0), at(run, "deliver", 0)
        assert run.events[arrived].owner == run.ranks
        distances.add(arrived - issued)
    assert distances == {1, 2, 3, 4, 5, 6}, "at once, or after any number of the others' events"


@pytest.mark.parametrize("second", PUT)
@pytest.mark.parametrize("first", PUT)
def test_row_b_a_fence_orders_per_target(go, first, second):
    program = twice(PUT[first], PUT[second], fenced=True)
    for schedule in schedules(2):
        assert delivered(go(program, 2, *schedule)) == [0, 1], schedule


def test_row_b_holding_the_first_holds_the_fenced_second(go):
    run = go(twice(PUT["put"], PUT["notify"], fenced=True), 2, Hold(0, 3))
    assert at(run, "deliver", 1) == at(run, "deliver", 0) + 1 > at(run, "notify", 1) + 1


def test_row_b_orders_all_before_against_all_after(go):
    def program(rank):
        window = rank.window("w", 4, torch.float32)
        if rank.index == 0:
            for _ in range(2):
                rank.put(window, 1, ONE, 0)
                rank.put(window, 1, ONE, 1)
                rank.fence()
            rank.put(window, 1, ONE, 2)

    seen = set()
    for schedule in schedules(4):
        order = delivered(go(program, 2, *schedule))
        assert set(order[:2]) == {0, 1}, schedule
        assert set(order[2:4]) == {2, 3}, schedule
        assert order[4] == 4, schedule
        seen.add(tuple(order))
    assert len(seen) == 4, "both pairs in both orders"


def test_row_c_without_a_fence_any_order(go):
    program = twice(PUT["put"], PUT["notify"], fenced=False)
    assert {tuple(delivered(go(program, 2, *s))) for s in schedules(2)} == {(0, 1), (1, 0)}


def test_row_c_a_fence_does_not_order_different_targets(go):
    program = twice(PUT["put"], PUT["put"], fenced=True, targets=(1, 2))
    assert {tuple(delivered(go(program, 3, *s))) for s in schedules(2)} == {(0, 1), (1, 0)}


def signalled(*, fenced):
    def program(rank):
        window = rank.window("w", 2, torch.float32)
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.put(window, 1, ONE, 0)
            if fenced:
                rank.fence()
            rank.put_signal(window, 1, ONE, 1, cells, 0, 7, op=NotifyOp.AtomicAdd)
        else:
            rank.wait(cells, 0, 7)
            return rank.load(window, 0, 2).tolist()

    return program


def test_row_d_a_signal_comes_after_its_own_data_only(go):
    orders = set()
    for schedule in schedules(3):
        run = go(signalled(fenced=False), 2, *schedule)
        order = delivered(run)
        assert order.index(1) < order.index(2), schedule
        assert run.results[1][0][1] == 1.0, "who sees the signal sees its data"
        orders.add(tuple(order))
    assert orders == {(0, 1, 2), (1, 0, 2), (1, 2, 0)}


def test_row_d_a_fence_orders_data_and_signal_behind_other_puts(go):
    for schedule in schedules(3):
        assert delivered(go(signalled(fenced=True), 2, *schedule)) == [0, 1, 2], schedule


def fetching(rank):
    """Rank 1 puts, fences and gets; rank 0 overwrites what is read."""
    window = rank.window("w", 2, torch.float32, init="zero")
    into = rank.buffer(1, torch.float32)
    if rank.index == 1:
        rank.put(window, 0, ONE, 0)
        rank.fence()
        rank.get_nbi(into, 0, window, 1)
        rank.quiet()
        return rank.load(into, 0, 1).item()
    rank.store(window, 5.0, 1)
    return None


def test_row_e_a_get_reads_and_lands_in_two_events(go):
    between = False
    for schedule in schedules(2):
        run = go(fetching, 2, *schedule)
        issued, read, land = (at(run, kind, 1) for kind in ("get_nbi", "read", "land"))
        assert issued < read < land < at(run, "quiet"), schedule
        stored = at(run, "store")
        assert run.results[1][0] == (5.0 if stored < read else 0.0), schedule
        between |= read < stored < land
    assert between, "the source may change between the two"


def test_row_e_a_fence_does_not_order_a_get(go):
    order = {
        at(run, "read", 1) < at(run, "deliver", 0)
        for run in (go(fetching, 2, *s) for s in schedules(2))
    }
    assert order == {True, False}


@pytest.mark.parametrize(
    ("operation", "late"), [("put", 1.0), ("remote_store", 1.0), ("put_nbi", 2.0)]
)
def test_rows_f_and_g_when_the_source_is_read(go, operation, late):
    def program(rank):
        window = rank.window("w", 1, torch.float32)
        source = rank.buffer(1, torch.float32)
        if rank.index == 0:
            rank.store(source, 1.0)
            value = rank.load(source, 0, 1) if operation == "remote_store" else source
            getattr(rank, operation)(window, 1, value)
            if isinstance(value, torch.Tensor):
                value.fill_(2.0)
            rank.store(source, 2.0)
        rank.barrier()
        return rank.load(window, 0, 1).item()

    assert go(program).results[1] == [1.0]
    assert go(program, 2, Hold(0)).results[1] == [late]


def test_row_h_quiet_returns_when_nothing_of_the_rank_is_in_flight(go):
    def program(rank):
        window = rank.window("w", 4, torch.float32)
        cells = rank.window("c", 1, torch.int32)
        into = rank.buffer(1, torch.float32)
        peer = 1 - rank.index
        rank.put(window, peer, ONE, 0)
        rank.put_nbi(window, peer, window.view(1, torch.float32), 1)
        rank.get_nbi(into, peer, window, 2)
        rank.notify(cells, peer, 0, 1)
        rank.put_signal(window, peer, ONE, 3, cells, 0, 1, op=NotifyOp.AtomicAdd)
        rank.quiet()

    for schedule in schedules(4):
        run = go(program, 2, *schedule)
        flying = [0, 0]
        for event in run.events:
            if event.kind in ("deliver", "land"):
                flying[run.lane_of(event)] -= 1
            elif event.number >= 0 and event.owner < 2:
                flying[event.owner] += 1
            elif event.kind == "quiet":
                assert flying[event.owner] == 0, schedule
        assert run.ended == "returned"
        assert flying == [0, 0]


@pytest.mark.parametrize(("call", "stale_is_possible"), [("sync", True), ("barrier", False)])
def test_row_i_sync_completes_nothing_and_barrier_does(go, call, stale_is_possible):
    def program(rank):
        window = rank.window("w", 1, torch.float32, init="zero")
        rank.put(window, 1 - rank.index, ONE)
        getattr(rank, call)()
        return rank.load(window, 0, 1).item()

    seen = {go(program, 2, *schedule).results[0][0] for schedule in schedules(2)}
    assert seen == ({0.0, 1.0} if stale_is_possible else {1.0})


def test_row_i_nobody_leaves_before_all_have_arrived(go):
    def program(rank):
        rank.sync()
        rank.barrier()

    for schedule in schedules(0):
        run = go(program, 3, *schedule)
        inside = 0
        for event in run.events:
            if event.kind == "sync_arrive":
                inside += 1
            elif event.kind in ("sync", "barrier"):
                assert inside >= (3 if event.kind == "sync" else 6), schedule


def test_row_j_wait_looks_at_delivered_values_only(go):
    def program(rank):
        window = rank.window("w", 1, torch.float32, init="zero")
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.put(window, 1, ONE)
            rank.notify(cells, 1, 0, 1)
            return None
        rank.wait(cells, 0, 1)
        return rank.load(window, 0, 1).item()

    seen = set()
    for schedule in schedules(2):
        run = go(program, 2, *schedule)
        assert at(run, "deliver", 1) < at(run, "wait"), schedule
        seen.add(run.results[1][0])
    assert seen == {0.0, 1.0}, "the signal may pass the data"


def test_row_k_load_store_and_remote_load_act_at_once(go):
    def program(rank):
        window = rank.window("w", 1, torch.float32, init="zero")
        if rank.index == 0:
            rank.store(window, 3.0)
            mine = rank.load(window, 0, 1).item()
            rank.put(window, 0, ONE)
            return mine, rank.load(window, 0, 1).item()
        return rank.remote_load(window, 0, 0, 1).item()

    for schedule in schedules(1):
        run = go(program, 2, *schedule)
        stored, far = at(run, "store"), at(run, "remote_load")
        arrived = at(run, "deliver")
        assert run.results[0][0][0] == 3.0
        assert run.results[1][0] == (0.0 if far < stored else 3.0 if far < arrived else 1.0)
    held = go(program, 2, Hold(0))
    assert held.results[0] == [(3.0, 3.0)], "a put to oneself is delivered like any other"


def test_row_l_eager_ignores_holds_but_not_preempts(go):
    program = twice(PUT["put"], PUT["notify"], fenced=False)
    plain = go(program).identity()
    assert go(program, 2, Hold(0), eager=True).identity() == plain
    assert go(program, 2, Hold(0)).identity() != plain
    assert go(program, 2, Preempt(2, 0), eager=True).identity() != plain


def test_many_operations_in_flight_cost_no_more_each(go):
    def program(rank):
        cells = rank.window("cells", 1, torch.int32)
        for number in range(3000):
            if number == 1500:
                rank.fence()
            rank.notify(cells, 0, 0, 1)
        rank.wait(cells, 0, 3000)

    run = go(program, 1, [Hold(number) for number in range(3000)])
    delivered = [event.number for event in run.events if event.kind == "deliver"]
    assert delivered == list(range(3000))
