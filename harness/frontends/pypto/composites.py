"""The collectives as their sequences of operations: in a kernel, and as the host's builtin kernels.

Each function runs on every rank of the domain. In a kernel (`InCore composite`) a mesh all-reduce works
through chunks of 16 KiB, in the host's kernels through tiles of 256 elements; the host's broadcast has a
barrier a tile. All-reduce and reduce-scatter store only when every rank has read what they overwrite.
Broadcast does not, nor do the collectives that push: the next call, or whoever stages the next
message, may overwrite what a slower rank still reads; so it is on the machine (reference/pypto.md 2.4).

Not modelled: padding of ragged loads to 32 bytes, staging tiles. The blocks of a multi-core all-reduce
follow each other on a rank; each has its own column of cells, as on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch

from harness.frontends.pypto import operate
from harness.frontends.pypto.credits import Credits, column, row
from harness.frontends.pypto.enums import NotifyOp, ReduceOp
from harness.frontends.pypto.operate import publish
from harness.frontends.pypto.values import Tile, View

CHUNK_BYTES = 16 * 1024
TILE_ELEMENTS = 256
FP16_STEP = 16  # elements of 32 bytes

COMBINE: dict[ReduceOp, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    ReduceOp.Sum: torch.add, ReduceOp.Max: torch.maximum, ReduceOp.Min: torch.minimum,
    ReduceOp.Prod: torch.mul,
}


def barrier(signal: View) -> None:
    """Wait for everybody."""
    credits = Credits(signal, column(signal))
    credits.meet()
    credits.settle()


def broadcast(target: View, signal: View, *, root: int, tile: int = 0) -> None:
    """Everybody pulls the root's `target`; nobody waits until all have. tile: elements a barrier."""
    credits = Credits(signal, column(signal))
    flat = flattened(target)
    for start, count in spans(0, flat.numel, tile or flat.numel):
        credits.meet()
        if credits.domain.rank != root:
            part = flat.region((start,), (count,))
            operate.get(part, root, part)
    credits.settle()


def allgather(local_data: View | Tile, target: View, signal: View) -> None:
    """Push one's own row to everybody, oneself included."""
    credits = Credits(signal, column(signal))
    width = target.shape[-1]
    mine = target.region((credits.domain.rank, 0), (1, width))
    for peer in range(credits.domain.nranks):
        if isinstance(local_data, Tile):
            operate.remote_store(mine, peer, local_data.real)
        else:
            operate.put(mine, peer, local_data)
        publish()
    credits.meet()
    credits.settle()


def all_to_all(input: View, target: View, signal: View) -> None:
    """Push row `dest` of `input` to the row of mine of each `dest`."""
    credits = Credits(signal, column(signal))
    width = target.shape[-1]
    mine = target.region((credits.domain.rank, 0), (1, width))
    for peer in range(credits.domain.nranks):
        operate.put(mine, peer, input.region((peer, 0), (1, width)))
        publish()
    credits.meet()
    credits.settle()


def all_to_all_v(
    input: View, target: View, signal: View, send_counts: View, recv_counts: View
) -> None:
    """Push a full block to each rank, and Set how many of its rows count."""
    credits = Credits(signal, column(signal))
    me, nranks = credits.domain.rank, credits.domain.nranks
    capacity, width = target.shape[0] // nranks, target.shape[-1]
    mine = target.region((me * capacity, 0), (capacity, width))
    count_cell = column(recv_counts)(me)
    for peer in range(nranks):
        rows = operate.read(column(send_counts)(peer))
        operate.put(mine, peer, input.region((peer * capacity, 0), (capacity, width)))
        publish()
        operate.notify(count_cell, peer, min(int(rows), capacity), op=NotifyOp.Set)
    credits.meet()
    credits.settle()


def reduce_scatter(target: View, signal: View, *, op: ReduceOp = ReduceOp.Sum) -> None:
    """Row `me` becomes the sum of everybody's row `me`."""
    credits = Credits(signal, column(signal))
    mine = target.region((credits.domain.rank, 0), (1, target.shape[-1]))
    credits.meet()
    total = reduced(mine, credits.peers, op)
    credits.meet()
    operate.store(mine, total)
    credits.settle()


def allreduce_mesh(
    target: View, signal: View, *, op: ReduceOp, chunk: int, core_num: int = 1
) -> None:
    """Everybody's `target` becomes the reduction of all. chunk: elements between two barriers."""
    flat = flattened(target)
    for block in range(core_num):
        credits = Credits(signal, column(signal, block))
        credits.meet()
        parts = list(spans(0, flat.numel, chunk))
        for start, count in parts[block::core_num]:
            part = flat.region((start,), (count,))
            total = reduced(part, credits.peers, op)
            credits.meet()
            operate.store(part, total)
        credits.settle()


def allreduce_ring(target: View, signal: View, *, op: ReduceOp, chunk: int) -> None:
    """The same in 2 * (nranks - 1) rounds with the left neighbour: reduce-scatter, then all-gather.

    Each round has its row of cells, each chunk in it two barriers: ready, and read by everybody.
    """
    flat = flattened(target)
    first = Credits(signal, row(signal, 0))
    me, nranks = first.domain.rank, first.domain.nranks
    if nranks == 1:
        return
    edges = boundaries(flat.numel, nranks, FP16_STEP if target.dtype.bits == 16 else 1)
    longest = max(hi - lo for lo, hi in pairwise(edges))
    rounds = 2 * (nranks - 1)
    for number in range(rounds):
        credits = Credits(signal, row(signal, number))
        gathering = number >= nranks - 1
        step = number - (nranks - 1) if gathering else number
        segment = (me - step - (0 if gathering else 1)) % nranks
        lo, hi = edges[segment], edges[segment + 1]
        for offset, _ in spans(0, longest, chunk):  # as many for everybody
            start = min(lo + offset, hi)
            part = flat.region((start,), (min(chunk, hi - start),))
            credits.meet()
            held = pulled(part, (me - 1) % nranks, None if gathering else op)
            credits.meet()
            if held is not None:
                operate.store(part, held)
        credits.settle()


def allreduce_host_ring(target: View, signal: View, *, op: ReduceOp, chunk: int) -> None:
    """The host's ring: one barrier a round, and one more row for a last barrier."""
    flat = flattened(target)
    nranks = operate.current().domain_of(signal).nranks
    rounds = 2 * (nranks - 1)
    last = Credits(signal, row(signal, rounds))
    me = last.domain.rank
    width = flat.numel // nranks
    used = []
    for number in range(rounds):
        credits = Credits(signal, row(signal, number))
        used.append(credits)
        credits.meet()
        gathering = number >= nranks - 1
        step = number - (nranks - 1) if gathering else number
        segment = (me - step - (0 if gathering else 1)) % nranks
        for start, count in spans(segment * width, width, chunk):
            part = flat.region((start,), (count,))
            held = pulled(part, (me - 1) % nranks, None if gathering else op)
            if held is not None:
                operate.store(part, held)
    last.meet()
    for credits in (*used, last):
        credits.settle()


def reduced(part: View, peers: list[int], op: ReduceOp) -> torch.Tensor:
    """One's own elements of `part` and those of all peers, combined."""
    total = operate.load(part)
    for peer in peers:
        total = COMBINE[op](total, operate.remote_load(part, peer))
    return total


def pulled(part: View, peer: int, op: ReduceOp | None) -> torch.Tensor | None:
    """`peer`'s elements of `part`, combined with one's own if `op` says how; None if there are none."""
    if not part.numel:
        return None
    held = operate.remote_load(part, peer)
    return held if op is None else COMBINE[op](operate.load(part), held)


def flattened(view: View) -> View:
    """The view in one dimension."""
    return view.reshaped((view.numel,))


def spans(start: int, count: int, longest: int) -> Iterator[tuple[int, int]]:
    """Start and length of the stretches that `count` elements from `start` on are cut into."""
    end = start + count
    while start < end:
        yield start, min(longest, end - start)
        start += longest


def boundaries(size: int, parts: int, step: int = 1) -> list[int]:
    """Where the segments of a ring begin, and the last one's end; inner edges are multiples of `step`."""
    inner = [min(-(-(part * size // parts) // step) * step, size) for part in range(1, parts)]
    return [0, *inner, size]
