"""How runs end: returned, blocked, with an exception, after a crash; and what programs make of it
with try, except and finally. What a program does while its world is taken down is no finding."""

from __future__ import annotations

import pytest
import torch

from harness.errors import OutOfBounds, PeerLost
from harness.interpose import Die
from harness.plan import Fault


class DieAt(Fault, frozen=True):
    """Kills the rank before its nth store."""

    def matches(self, op):
        return op.kind == "store"

    def rewrite(self, op):
        return Die()


def waits_for_ever(rank):
    cells = rank.window("c", 2, torch.int32)
    rank.notify(cells, rank.index, 1, 2)
    rank.wait(cells, 1, 3)


def test_a_blocked_world_is_seen_and_described(go):
    run = go(waits_for_ever, 2)
    assert run.ended == "blocked"
    assert run.results == [None, None]
    assert run.failures == []
    for lane, entry in enumerate(run.blocked):
        assert (entry.lane, entry.kind, entry.window, entry.at) == (lane, "wait", 0, 1)
        assert (entry.expected, entry.value, entry.compare) == (3, 2, ">=")
        assert entry.code is waits_for_ever.__code__


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda rank: rank.sync(), "sync"),
        (lambda rank: rank.barrier(), "barrier"),
        (lambda rank: rank.window("late", 1, torch.int32), "window"),
    ],
)
def test_a_missing_arrival_is_described(go, call, kind):
    def program(rank):
        if rank.index != 1:
            call(rank)

    run = go(program, 3)
    assert [(entry.lane, entry.kind, entry.value, entry.expected) for entry in run.blocked] == [
        (0, kind, 2, 3),
        (2, kind, 2, 3),
    ]
    assert run.calls[1] == []
    assert [len(calls) for calls in run.calls] == [1, 0, 1]


def finally_barrier(rank, cells):
    try:
        rank.wait(cells, 0, 1)
    finally:
        rank.barrier()


def finally_wait(rank, cells):
    try:
        rank.wait(cells, 0, 1)
    finally:
        rank.wait(cells, 1, 9)


def finally_raise(rank, cells):
    try:
        rank.wait(cells, 0, 1)
    finally:
        raise ValueError("while unwinding")


def swallow_and_return(rank, cells):
    try:
        rank.wait(cells, 0, 1)
    except BaseException:
        return "as if nothing had happened"


def swallow_and_go_on(rank, cells):
    while True:
        try:
            rank.wait(cells, 0, 1)
        except BaseException:
            continue


def except_exception(rank, cells):
    try:
        rank.wait(cells, 0, 1)
    except Exception:
        return "caught"


def translate(rank, cells):
    try:
        rank.wait(cells, 0, 1)
    except BaseException as error:
        raise RuntimeError("translated") from error


@pytest.mark.parametrize(
    "block",
    [
        finally_barrier,
        finally_wait,
        finally_raise,
        swallow_and_return,
        swallow_and_go_on,
        except_exception,
        translate,
    ],
)
def test_what_a_program_does_while_it_is_unwound_means_nothing(go, block):
    def program(rank):
        return block(rank, rank.window("c", 2, torch.int32))

    run = go(program, 2)
    assert run.ended == "blocked"
    assert run.failures == []
    assert run.results == [None, None]
    assert [(e.lane, e.kind, e.at, e.expected) for e in run.blocked] == [
        (0, "wait", 0, 1),
        (1, "wait", 0, 1),
    ]
    assert [event.kind for event in run.events][-2:] == ["window", "window"]
    assert [len(calls) for calls in run.calls] == [1, 1]


def test_operations_in_finally_work_while_the_world_lives(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        try:
            if rank.index == 0:
                raise ValueError("mine")
            rank.wait(cells, 0, 1)
        except ValueError:
            return "handled"
        finally:
            if rank.index == 0:
                rank.notify(cells, 1, 0, 1)
        return "woken"

    run = go(program)
    assert (run.ended, run.results) == ("returned", [["handled"], ["woken"]])


def test_an_exception_is_recorded_with_its_own_lines_in_order(go):
    def helper(rank):
        raise KeyError(f"rank {rank.index}")

    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 2:
            rank.load(cells, 5, 1)
        if rank.index == 1:
            helper(rank)
        rank.wait(cells, 0, 1)

    run = go(program, 3)
    assert run.ended == "blocked"
    assert [(failure.lane, type(failure.error)) for failure in run.failures] == [
        (2, OutOfBounds),
        (1, KeyError),
    ], "the order in which they happened: rank 2 met the others last and went on"
    first, second = run.failures
    assert first.code is program.__code__
    assert second.code is helper.__code__
    assert "in program" in second.traceback
    assert "in helper" in second.traceback
    assert "KeyError: 'rank 1'" in second.traceback
    assert "simulated" not in second.traceback, "the harness's own frames are left out"
    assert first.clock < second.clock
    assert [entry.lane for entry in run.blocked] == [0]


def test_an_error_inside_a_library_is_placed_in_the_program(go):
    def program(rank):
        return torch.nn.functional.one_hot(torch.ones(1), 2)

    (failure, _) = go(program).failures
    assert failure.code is program.__code__


def test_sys_exit_is_a_failure_of_the_program(go):
    def program(rank):
        if rank.index == 0:
            raise SystemExit(3)
        return "done"

    run = go(program)
    assert (run.ended, run.results[1]) == ("returned", ["done"])
    assert [type(failure.error) for failure in run.failures] == [SystemExit]


@pytest.mark.parametrize("where", ["before the first operation", "between", "while unwinding"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_an_order_to_stop_ends_the_run_and_reaches_the_caller(go, where, error):
    def program(rank):
        if rank.index == 1 and where == "before the first operation":
            raise error("stop")
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 1 and where == "between":
            raise error("stop")
        try:
            rank.wait(cells, 0, 1)
        finally:
            if rank.index == 1 and where == "while unwinding":
                raise error("stop")

    with pytest.raises(error, match="stop"):
        go(program, 3)
    assert go(waits_for_ever, 3).ended == "blocked", "the next run is not disturbed"


def test_survivors_of_a_crash_get_peer_lost(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.store(cells, 5)
            rank.notify(cells, 1, 0, 1)
        rank.wait(cells, 0, 1)
        return "not reached"

    run = go(program, 3, faults=(DieAt(),))
    assert run.ended == "returned"
    assert run.dead == [0]
    assert sorted(run.peers_lost) == [1, 2]
    assert (run.failures, run.blocked) == ([], [])
    kinds = [event.kind for event in run.events]
    assert kinds.index("crash") < kinds.index("peer_lost")
    assert kinds.count("peer_lost") == 2
    assert run.results == [None, None, None]


def test_each_survivor_has_an_error_of_its_own(go):
    seen = []

    def program(rank):
        buffer = rank.buffer(1, torch.int32)
        if rank.index == 0:
            rank.store(buffer, 5)
        try:
            rank.sync()
        except PeerLost as lost:
            seen.append(lost)
            raise

    go(program, 3, faults=(DieAt(),))
    assert [lost.rank for lost in seen] == [0, 0]
    assert seen[0] is not seen[1], "a shared one would collect both ranks' tracebacks"


def test_a_survivor_may_go_on(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.store(cells, 5)
        try:
            rank.wait(cells, 0, 1)
        except PeerLost:
            rank.notify(cells, rank.index, 0, 1)
            rank.wait(cells, 0, 1)
            return "recovered"

    run = go(program, 2, faults=(DieAt(),))
    assert (run.ended, run.peers_lost, run.results[1]) == ("returned", [], ["recovered"])


def test_a_dead_rank_does_nothing_more(go):
    """Not in its `finally` blocks, not by swallowing its death, not in its next dispatch."""
    reached = []

    def program(rank):
        cells = rank.window("c", 2, torch.int32)
        if rank.index == 0:
            try:
                rank.store(cells, 5)
            except BaseException:
                reached.append("except")
            try:
                rank.notify(cells, 1, 0, 1)
                reached.append("notified")
            finally:
                cells.free()
        rank.wait(cells, 0, 1)

    run = go(program, 2, faults=(DieAt(),))
    assert reached == ["except"]
    assert (run.dead, run.peers_lost, run.failures) == ([0], [1], [])
    assert not [event for event in run.events if event.kind in ("notify", "free")]

    def swallows(rank):
        try:
            rank.store(rank.buffer(1, torch.int32), 1)
        except BaseException:
            return "alive"

    run = go(swallows, 2, faults=(DieAt(),))
    assert (run.dead, run.results) == ([0], [None, [None]])


def test_operations_in_flight_of_a_dead_rank_still_arrive(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.notify(cells, 1, 0, 1)
            rank.store(cells, 5)
        else:
            rank.wait(cells, 0, 1)
            return "woken"

    assert go(program, 2, faults=(DieAt(),)).results[1] == ["woken"]
