"""Memory that is freed or reused too early, and programs that wait as they should."""

from __future__ import annotations

import torch

from harness import AtomicType, Hold, Preempt, scenario

F32 = torch.float32


def made(program):
    return scenario(reference=lambda size, **_: [None] * size, ranks=(1, 8))(program)


def only(outcome, name: str):
    assert [f.name for f in outcome.findings] == [name]
    return outcome.findings[0]


@made
def use_after_free(rank) -> None:
    win = rank.window("w", 4, F32)
    win.free()
    if rank.index == 1:
        rank.load(win, 0, 4)


def test_use_after_free(judge):
    finding = only(judge(use_after_free, 2), "lifetime/use_after_free")
    assert finding.rank == 1
    assert "load on window 'w'" in finding.message
    assert [str(site) for site in finding.sites] == ["use_after_free:load#0"]
    assert judge(use_after_free, 1).findings == ()


@made
def freed_early(rank) -> None:
    win = rank.window("w", 4, F32)
    if rank.index == 0:
        rank.put(win, 1, torch.ones(4))
    rank.sync()
    win.free()


@made
def freed_after_barrier(rank) -> None:
    win = rank.window("w", 4, F32)
    if rank.index == 0:
        rank.put(win, 1, torch.ones(4))
    rank.barrier()
    win.free()


def test_freed_in_flight(judge):
    finding = only(judge(freed_early, 2, Hold(0)), "lifetime/freed_in_flight")
    assert finding.rank == 1
    assert "rank 1 freed 'w' while rank 0's put #0" in finding.message
    assert judge(freed_early, 2).findings == ()
    assert judge(freed_after_barrier, 2, Hold(0)).findings == ()


@made
def remote_load_after_free(rank) -> None:
    win = rank.window("w", 4, F32)
    if rank.index == 1:
        win.free()
    rank.sync()
    if rank.index == 0:
        rank.remote_load(win, rank.size - 1, 0, 4)


def test_a_remote_load_after_the_owner_freed(judge):
    finding = only(judge(remote_load_after_free, 2), "lifetime/freed_in_flight")
    assert "remote_load" in finding.message
    assert judge(remote_load_after_free, 3).findings == ()


@made
def store_during_get(rank) -> None:
    win, mine = rank.window("w", 4, F32), rank.buffer(4, F32)
    rank.store(win, torch.zeros(4))
    rank.sync()
    if rank.index == 0:
        rank.get_nbi(mine, 1, win)
    rank.sync()
    rank.store(win, torch.ones(4))


@made
def store_after_quiet(rank) -> None:
    win, mine = rank.window("w", 4, F32), rank.buffer(4, F32)
    rank.store(win, torch.zeros(4))
    rank.sync()
    if rank.index == 0:
        rank.get_nbi(mine, 1, win)
    rank.barrier()
    rank.store(win, torch.ones(4))


def test_overwritten_while_a_get_reads(judge):
    finding = only(judge(store_during_get, 2, Hold(0)), "lifetime/overwritten_while_read")
    assert finding.rank == 1
    assert "overwrote 'w'[0:4] while rank 0's get_nbi #0" in finding.message
    assert len(finding.events) == 3
    assert judge(store_during_get, 2).findings == ()
    assert judge(store_after_quiet, 2, Hold(0)).findings == ()


@made
def source_reused(rank) -> None:
    win, mine = rank.window("w", 2, F32), rank.buffer(2, F32)
    rank.store(mine, torch.full((2,), 3.0))
    rank.put_nbi(win, (rank.index + 1) % rank.size, mine)
    rank.store(mine, torch.full((2,), 7.0))
    rank.barrier()


@made
def atomic_put(rank) -> None:
    win, mine = rank.window("w", 1, torch.int32), rank.buffer(1, torch.int32)
    rank.store(mine, 1)
    for _ in range(2):
        rank.put_nbi(win, 0, mine, atomic=AtomicType.Add)
    rank.store(rank.buffer(1, torch.int32), 2)
    rank.barrier()


def test_overwritten_while_a_put_nbi_reads_its_source(judge):
    finding = only(judge(source_reused, 2, Hold(0)), "lifetime/overwritten_while_read")
    assert finding.rank == 1
    assert "put_nbi #0" in finding.message
    assert judge(source_reused, 2).findings == ()
    assert judge(atomic_put, 2, Hold(0), Hold(1)).findings == ()


@made
def polls_by_get(rank) -> None:
    flag, seen = rank.window("flag", 1, torch.int32), rank.buffer(1, torch.int32)
    if rank.index == 0:
        while rank.size > 1:
            rank.get(seen, 1, flag)
            if int(rank.load(seen, 0, 1)):
                break
    elif rank.index == 1:
        rank.store(flag, 1)


def test_polling_an_integer_by_get_is_allowed(judge):
    for at in range(12):
        assert judge(polls_by_get, 2, Hold(0), Preempt(at, 0)).findings == ()
