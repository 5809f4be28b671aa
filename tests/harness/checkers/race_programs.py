"""Rank programs with a known answer: racy ones, and their healthy twins (algorithms.md section 5).

Each is `program(rank)`; RACY and HEALTHY list them with the worlds they are for.
"""

from __future__ import annotations

import torch

from harness import NotifyOp

F32, INT = torch.float32, torch.int32
N = 2


def row(value: float) -> torch.Tensor:
    return torch.full((N,), float(value))


def opened(rank, cells=1, rows=8):
    return rank.window("data", (rows, N), F32, init="zero"), rank.window("sig", cells, INT)


def others(rank):
    return [peer for peer in range(rank.size) if peer != rank.index]


def producers(order):
    """Every other rank puts a row to rank 0 and counts; rank 0 waits for all and reads."""

    def program(rank):
        data, sig = opened(rank)
        if rank.index:
            rank.put(data, 0, row(rank.index), N * rank.index)
            order(rank)
            rank.notify(sig, 0, 0, 1)
        else:
            rank.wait(sig, 0, rank.size - 1)
            rank.load(data, N, N * (rank.size - 1))

    return program


def all_to_all(rounds, threshold, *, fence=lambda rank, peer: True):
    """A barrier made of puts, fences and counts, `rounds` times; each round has rows of its own."""

    def program(rank):
        data, sig = opened(rank, cells=rank.size, rows=rounds * rank.size)
        for turn in range(rounds):
            for peer in others(rank):
                rank.put(data, peer, row(turn), N * (turn * rank.size + rank.index))
                if fence(rank.index, peer):
                    rank.fence()
                rank.notify(sig, peer, rank.index, 1)
            for peer in others(rank):
                rank.wait(sig, peer, threshold(turn))
                rank.load(data, N * (turn * rank.size + peer), N)

    return program


def missing_one_fence(size):
    """The last rank's last notify follows its put without a fence."""
    return all_to_all(1, lambda turn: 1, fence=lambda rank, peer: (rank, peer) != (size - 1, size - 2))


def reused(threshold):
    """Two rounds of an all-to-all on one shared count."""

    def program(rank):
        data, sig = opened(rank, rows=2 * rank.size)
        for turn in range(2):
            for peer in others(rank):
                rank.put(data, peer, row(turn), N * (turn * rank.size + rank.index))
            rank.quiet()
            for peer in others(rank):
                rank.notify(sig, peer, 0, 1)
            rank.wait(sig, 0, threshold(rank, turn))
            for peer in others(rank):
                rank.load(data, N * (turn * rank.size + peer), N)

    return program


def multiplexed(chunks, *, ordered):
    """Chunks with a notify each on one counter, read one by one as the count grows."""

    def program(rank):
        data, sig = opened(rank, rows=chunks)
        if rank.index:
            for chunk in range(chunks):
                rank.put_signal(data, 0, row(chunk), N * chunk, sig, 0, 1)
                if ordered:
                    rank.fence()
        else:
            for chunk in range(chunks):
                rank.wait(sig, 0, chunk + 1)
                rank.load(data, N * chunk, N)

    return program


def write_after_read(*, acknowledged):
    """A second put over what the reader still reads."""

    def program(rank):
        data, sig = opened(rank, cells=2)
        if rank.index:
            rank.put(data, 0, row(1))
            rank.fence()
            rank.notify(sig, 0, 0, 1)
            if acknowledged:
                rank.wait(sig, 1, 1)
            rank.put(data, 0, row(2))
        else:
            rank.wait(sig, 0, 1)
            rank.load(data, 0, N)
            if acknowledged:
                rank.notify(sig, 1, 1, 1)

    return program


def credits(*, clear, settle=lambda rank: rank.quiet(), rounds=3):
    """A barrier whose count is taken back by its owner in every round, before anybody may go on.

    Two cells in turn: a peer's next arrival on a cell comes after this rank's arrival on the other.
    """

    def program(rank):
        data, sig = opened(rank, cells=2, rows=rounds * rank.size)
        for turn in range(rounds):
            for peer in others(rank):
                rank.put(data, peer, row(turn), N * (turn * rank.size + rank.index))
            settle(rank)
            for peer in others(rank):
                rank.notify(sig, peer, turn % 2, 1)
            rank.wait(sig, turn % 2, rank.size - 1)
            clear(rank, sig, turn % 2, rank.size - 1)
            for peer in others(rank):
                rank.load(data, N * (turn * rank.size + peer), N)

    return program


def take_back(rank, sig, cell, count):
    rank.notify(sig, rank.index, cell, -count)
    rank.quiet()


def take_back_later(rank, sig, cell, count):
    """Complete only at the next quiet."""
    rank.notify(sig, rank.index, cell, -count)


def never_taken_back(rank, sig, cell, count):
    pass


def store_zero(rank, sig, cell, count):
    rank.store(sig, 0, cell)


def set_zero(rank, sig, cell, count):
    rank.notify(sig, rank.index, cell, 0, op=NotifyOp.Set)
    rank.quiet()


def one_cell_credits(clear):
    """The same on one cell: a fast peer's next arrival may come before this one is cleared."""

    def program(rank):
        data, sig = opened(rank, rows=3 * rank.size)
        for turn in range(3):
            for peer in others(rank):
                rank.put(data, peer, row(turn), N * (turn * rank.size + rank.index))
            rank.quiet()
            for peer in others(rank):
                rank.notify(sig, peer, 0, 1)
            rank.wait(sig, 0, rank.size - 1)
            clear(rank, sig, 0, rank.size - 1)
            for peer in others(rank):
                rank.load(data, N * (turn * rank.size + peer), N)

    return program


def slots(*, epochs, meet=lambda rank: None):
    """Set to the epoch in a slot a source, twice. Without a meeting the second may overtake the first."""

    def program(rank):
        data, sig = opened(rank, cells=rank.size, rows=2 * rank.size)
        for turn in range(2):
            value = turn + 1 if epochs else 1
            for peer in others(rank):
                rank.put_signal(data, peer, row(turn), N * (turn * rank.size + rank.index), sig,
                                rank.index, value, op=NotifyOp.Set)
            for peer in others(rank):
                rank.wait(sig, peer, value)
                rank.load(data, N * (turn * rank.size + peer), N)
            meet(rank)

    return program


def source_written(order):
    def program(rank):
        data, _ = opened(rank)
        mine = rank.buffer(N, F32)
        rank.store(mine, row(1))
        rank.put_nbi(data, (rank.index + 1) % rank.size, mine)
        order(rank)
        rank.store(mine, row(2))

    return program


def landing_read(order):
    def program(rank):
        data, _ = opened(rank)
        mine = rank.buffer(N, F32)
        rank.get_nbi(mine, (rank.index + 1) % rank.size, data)
        order(rank)
        rank.load(mine, 0, N)

    return program


def forwarded(*, waits):
    """Rank 1 passes on, with put from its window, what rank 0 puts into it."""

    def program(rank):
        data, sig = opened(rank)
        part = data.view(N, F32)
        if rank.index == 0:
            rank.put_signal(data, 1, row(3), 0, sig, 0, 1)
        elif rank.index == 1:
            if waits:
                rank.wait(sig, 0, 1)
            rank.put_signal(data, 2, part, 0, sig, 0, 1)
        elif rank.index == 2:
            rank.wait(sig, 0, 1)
            rank.load(data, 0, N)

    return program


def get_across(how, *, met):
    """A neighbour's row by get or remote_load; it was stored before a barrier, or beside it."""

    def program(rank):
        data, _ = opened(rank)
        mine = rank.buffer(N, F32)
        rank.store(data, row(rank.index))
        if met:
            rank.sync()
        how(rank, data, mine, (rank.index + 1) % rank.size)

    return program


def by_get(rank, data, mine, peer):
    rank.get(mine, peer, data)


def by_remote_load(rank, data, mine, peer):
    rank.remote_load(data, peer, 0, N)


def notified_data(rank):
    """A notify hits a row of data that its owner writes."""
    data = rank.window("data", 4, INT)
    rank.notify(data, (rank.index + 1) % rank.size, 1, 1)
    rank.store(data, torch.zeros(4, dtype=INT))


def put_on_counter(rank):
    _, sig = opened(rank)
    rank.sync()
    if rank.index:
        rank.notify(sig, 0, 0, 1)
    else:
        rank.put(sig, 0, torch.ones(1, dtype=INT))


def atomics_only(rank):
    _, sig = opened(rank)
    from harness import AtomicType

    for peer in range(rank.size):
        rank.notify(sig, peer, 0, 1)
        rank.put(sig, peer, torch.ones(1, dtype=INT), atomic=AtomicType.Add)
    rank.wait(sig, 0, 2 * rank.size)


def polled(look, order):
    """Rank 0 polls the count that the others raise behind their rows."""

    def program(rank):
        data, sig = opened(rank)
        mine = rank.buffer(1, INT)
        if rank.index:
            rank.put(data, 0, row(rank.index), N * rank.index)
            order(rank)
            rank.notify(sig, 0, 0, 1)
        else:
            while look(rank, sig, mine) < rank.size - 1:
                pass
            rank.load(data, N, N * (rank.size - 1))

    return program


def look_load(rank, sig, mine):
    return rank.load(sig, 0, 1).item()


def look_get(rank, sig, mine):
    rank.get(mine, 0, sig)
    return rank.load(mine, 0, 1).item()


def look_get_nbi(rank, sig, mine):
    rank.get_nbi(mine, 0, sig)
    rank.quiet()
    return rank.load(mine, 0, 1).item()


def look_remote(rank, sig, mine):
    return rank.remote_load(sig, 0, 0, 1).item()


def flagged(order):
    """A flag put after the row and polled, with no notify at all."""

    def program(rank):
        data, sig = opened(rank)
        if rank.index == 1:
            rank.put(data, 0, row(1))
            order(rank)
            rank.put(sig, 0, torch.ones(1, dtype=INT))
        elif rank.index == 0:
            while not rank.load(sig, 0, 1).item():
                pass
            rank.load(data, 0, N)

    return program


def latch(order):
    """A cell that counts down to zero."""

    def program(rank):
        from harness import WaitCmp

        data, sig = opened(rank)
        if rank.index == 0:
            rank.store(sig, rank.size - 1, 0)
        rank.sync()
        if rank.index:
            rank.put(data, 0, row(rank.index), N * rank.index)
            order(rank)
            rank.notify(sig, 0, 0, -1)
        else:
            rank.wait(sig, 0, 0, cmp=WaitCmp.Eq)
            rank.load(data, N, N * (rank.size - 1))

    return program


def weighted(enough):
    """Two producers count by 1 and 3; a wait for 4 needs both, a wait for 3 only the second."""

    def program(rank):
        data, sig = opened(rank)
        if rank.index in (1, 2):
            rank.put_signal(data, 0, row(1), N * rank.index, sig, 0, {1: 1, 2: 3}[rank.index])
        elif rank.index == 0:
            rank.wait(sig, 0, enough)
            rank.load(data, N * 2, N)
            if enough == 4:
                rank.load(data, N, N)

    return program


def weighted_short(rank):
    """A wait for 3 does not tell of the producer that counts by 1."""
    data, sig = opened(rank)
    if rank.index in (1, 2):
        rank.put_signal(data, 0, row(1), N * rank.index, sig, 0, {1: 1, 2: 3}[rank.index])
    elif rank.index == 0:
        rank.wait(sig, 0, 3)
        rank.load(data, N, N)


def fence(rank):
    rank.fence()


def quiet(rank):
    rank.quiet()


def sync(rank):
    rank.sync()


def nothing(rank):
    pass


def once(rank, turn):
    return rank.size - 1


def by_epoch(rank, turn):
    return (turn + 1) * (rank.size - 1)


LOOKS = {"load": look_load, "get": look_get, "get_nbi": look_get_nbi, "remote_load": look_remote}

# name: (program, size, kinds that the default run may give)
RACY = {
    "missing fence, 2 producers": (producers(nothing), 3, {"unordered_read"}),
    "barrier 4, one fence missing": (missing_one_fence(4), 4, {"unordered_read"}),
    "barrier 8, one fence missing": (missing_one_fence(8), 8, {"unordered_read"}),
    "reuse without epoch, 2 ranks": (reused(once), 2, {"unordered_read"}),
    "reuse without epoch, 4 ranks": (reused(once), 4, {"unordered_read"}),
    "3 chunks on one counter": (multiplexed(3, ordered=False), 2, {"unordered_read"}),
    "8 chunks on one counter": (multiplexed(8, ordered=False), 2, {"unordered_read"}),
    "second put while the reader reads": (write_after_read(acknowledged=False), 2,
                                          {"unordered_read", "unordered_write"}),
    "credits never taken back": (credits(clear=never_taken_back), 3, {"unordered_read"}),
    "credits taken back too late": (credits(clear=take_back_later, settle=fence), 2, {"unordered_read"}),
    "one cell cleared by store": (one_cell_credits(store_zero), 3, {"possible_erasure"}),
    "one cell cleared by Set": (one_cell_credits(set_zero), 3, {"possible_erasure"}),
    "slots without epoch": (slots(epochs=False, meet=sync), 2, {"unordered_read"}),
    "slots whose Sets overtake": (slots(epochs=True), 2, {"unordered_read"}),
    "source written in flight": (source_written(nothing), 2, {"source_reused"}),
    "source written behind a fence": (source_written(fence), 2, {"source_reused"}),
    "landing read in flight": (landing_read(sync), 2, {"source_reused"}),
    "passed on too early": (forwarded(waits=False), 3, {"unordered_read"}),
    "get beside the store": (get_across(by_get, met=False), 2, {"unordered_read"}),
    "remote_load beside the store": (get_across(by_remote_load, met=False), 2, {"unordered_read"}),
    "a notify hits data": (notified_data, 2, {"possible_erasure"}),
    "a put on a counter": (put_on_counter, 2, {"unordered_write"}),
    "count down without fence": (latch(nothing), 3, {"unordered_read"}),
    "weights that need not come": (weighted_short, 3, {"unordered_read"}),
    "sync before the count": (producers(lambda rank: None), 2, {"unordered_read"}),
    "flag put without fence": (flagged(nothing), 2, {"unordered_read"}),
    **{
        f"polled by {name} without fence": (polled(look, nothing), 3, {"unordered_read"})
        for name, look in LOOKS.items()
    },
}
HEALTHY = {
    "fenced producers": (producers(fence), 3),
    "quiet instead of fence": (producers(quiet), 3),
    "barrier 4": (all_to_all(1, lambda turn: 1), 4),
    "barrier 8": (all_to_all(1, lambda turn: 1), 8),
    "two rounds with epochs, 4 ranks": (all_to_all(2, lambda turn: turn + 1), 4),
    "reuse with epoch, 2 ranks": (reused(by_epoch), 2),
    "reuse with epoch, 4 ranks": (reused(by_epoch), 4),
    "8 chunks in order": (multiplexed(8, ordered=True), 2),
    "second put after the acknowledgement": (write_after_read(acknowledged=True), 2),
    "credits taken back, 2 ranks": (credits(clear=take_back), 2),
    "credits taken back, 4 ranks": (credits(clear=take_back), 4),
    "credits cleared by store": (credits(clear=store_zero), 4),
    "credits cleared by Set": (credits(clear=set_zero), 4),
    "slots with epochs": (slots(epochs=True, meet=sync), 4),
    "credits taken back at the next quiet": (credits(clear=take_back_later), 3),
    "source written after quiet": (source_written(quiet), 2),
    "landing read after quiet": (landing_read(quiet), 2),
    "passed on": (forwarded(waits=True), 3),
    "get after sync": (get_across(by_get, met=True), 3),
    "remote_load after sync": (get_across(by_remote_load, met=True), 3),
    "atomics beside atomics": (atomics_only, 4),
    "count down": (latch(fence), 3),
    "weights that must come": (weighted(4), 3),
    "a weight that suffices": (weighted(3), 3),
    "flag put and polled": (flagged(fence), 2),
    **{f"polled by {name}": (polled(look, fence), 3) for name, look in LOOKS.items()},
}
