"""A correct program may poll; a poll that nothing can end is a livelock, without a time limit."""

from __future__ import annotations

import time

import pytest
import torch

from harness.errors import PeerLost
from harness.interpose import Die
from harness.plan import Fault, Hold, Preempt


class DieAt(Fault, frozen=True):
    """Kills the rank at its nth notify."""

    def matches(self, op):
        return op.kind == "notify"

    def rewrite(self, op):
        return Die()


def by_load(rank, cells, scratch):
    return rank.load(cells, 0, 1).item()


def by_remote_load(rank, cells, scratch):
    return rank.remote_load(cells, rank.index, 0, 1).item()


def by_get(rank, cells, scratch):
    rank.get(scratch, rank.index, cells, 0)
    return rank.load(scratch, 0, 1).item()


def by_get_nbi(rank, cells, scratch):
    rank.get_nbi(scratch, rank.index, cells, 0)
    rank.quiet()
    return rank.load(scratch, 0, 1).item()


def with_fence(rank, cells, scratch):
    rank.fence()
    return rank.load(cells, 0, 1).item()


def with_sleep(rank, cells, scratch):
    time.sleep(0.01)
    return rank.load(cells, 0, 1).item()


LOOKS = [by_load, by_remote_load, by_get, by_get_nbi, with_fence, with_sleep]


@pytest.fixture(params=LOOKS, ids=lambda look: look.__name__)
def look(request):
    return request.param


def others_poll(look):
    """Every rank but the last polls for the last one's notify."""

    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        scratch = rank.buffer(1, torch.int32)
        rank.sync()
        if rank.index < rank.size - 1:
            while not look(rank, cells, scratch):
                pass
        else:
            rank.fence()
            for peer in range(rank.size - 1):
                rank.notify(cells, peer, 0, 1)

    return program


@pytest.mark.parametrize("schedule", [(), (Hold(0),), (Hold(0), Hold(1)), (Preempt(6, 0),)])
def test_a_poll_ends_although_the_polling_ranks_come_first(go, look, schedule):
    """Two pollers must not wake each other for ever while the third rank starves."""
    for at in range(8):
        run = go(others_poll(look), 3, Preempt(at, 0), *schedule)
        assert run.ended == "returned"
        assert len(run.raw) < 5_000


@pytest.mark.parametrize("size", [1, 2, 3])
def test_lanes_that_poll_for_ever_are_a_livelock(go, look, size):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        scratch = rank.buffer(1, torch.int32)
        while not look(rank, cells, scratch):
            pass

    run = go(program, size)
    assert run.ended == "livelock"
    assert [entry.lane for entry in run.livelock] == list(range(size))
    assert run.blocked == []
    assert all(entry.code is not None for entry in run.livelock), "the user's line is known"


def test_a_livelock_names_the_cell(go):
    def program(rank):
        data = rank.window("data", 4, torch.float32)
        cells = rank.window("c", 4, torch.int32)
        while not rank.load(cells, 3, 1).item():
            pass
        rank.load(data, 0, 1)

    (entry, _) = go(program).livelock
    assert (entry.kind, entry.window, entry.at, entry.compare) == ("load", 1, 3, "poll")
    assert entry.code is program.__code__


def test_lanes_blocked_beside_a_livelock_are_blocked(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            while not rank.load(cells, 0, 1).item():
                pass
        rank.wait(cells, 0, 1)

    run = go(program)
    assert run.ended == "livelock"
    assert [entry.lane for entry in run.livelock] == [0]
    assert [(entry.lane, entry.kind) for entry in run.blocked] == [(1, "wait")]


@pytest.mark.parametrize("bound", [10, 64, 65, 200, 3_000])
def test_a_bounded_poll_runs_to_its_bound(go, bound):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index:
            return bound
        return sum(1 for _ in range(bound) if not rank.load(cells, 0, 1).item())

    run = go(program)
    assert (run.ended, run.results) == ("returned", [[bound], [bound]])


@pytest.mark.parametrize("after", ["wait", "quiet", "sync", "sleep", "wait satisfied"])
def test_what_follows_sixty_four_reads_may_block(go, after):
    """A lane that has read 64 times is no poller unless it reads again."""

    def program(rank):
        cells = rank.window("c", 2, torch.int32)
        if rank.index == 0:
            rank.notify(cells, 0, 1, 1)
            rank.quiet()
            for _ in range(64):
                rank.load(cells, 0, 1)
            if after == "wait":
                rank.wait(cells, 0, 1)
            elif after == "wait satisfied":
                rank.wait(cells, 1, 1)
            elif after == "sleep":
                time.sleep(1)
            elif after == "quiet":
                rank.quiet()
        else:
            rank.notify(cells, 0, 0, 1)
        rank.sync()
        rank.barrier()

    for at in range(12):
        assert go(program, 2, Preempt(at, 0)).ended == "returned"


def test_reading_many_values_is_no_poll(go):
    def program(rank):
        data = rank.window("d", 512, torch.float32)
        if rank.index == 0:
            for _ in range(2):
                for element in range(512):
                    rank.load(data, element, 1)

    owners = [event.owner for event in go(program).events if event.kind == "load"]
    assert owners == [0] * 1024


def test_a_poller_sees_what_its_own_late_get_brings(go):
    def program(rank):
        data = rank.window("d", 1, torch.int32)
        rank.store(data, 7)
        rank.sync()
        into = rank.buffer(1, torch.int32)
        rank.store(into, 0)
        rank.get_nbi(into, 1 - rank.index, data)
        while rank.load(into, 0, 1).item() != 7:
            pass

    for schedule in ((), (Hold(0),), (Hold(0), Hold(1))):
        assert go(program, 2, *schedule).ended == "returned"


def test_polling_for_a_dead_rank_gives_peer_lost(go, look):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        scratch = rank.buffer(1, torch.int32)
        if rank.index == 0:
            rank.notify(cells, 1, 0, 1)
        while not look(rank, cells, scratch):
            pass

    run = go(program, 3, faults=(DieAt(),))
    assert (run.ended, run.dead, sorted(run.peers_lost)) == ("returned", [0], [1, 2])


def test_a_program_that_survives_peer_lost_goes_on(go):
    def program(rank):
        cells = rank.window("c", 1, torch.int32)
        if rank.index == 0:
            rank.notify(cells, 1, 0, 1)
        try:
            while not rank.load(cells, 0, 1).item():
                pass
        except PeerLost as lost:
            return lost.rank
        return None

    assert go(program, 2, faults=(DieAt(),)).results[1] == [0]
