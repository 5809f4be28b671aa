"""A sum that lacks what a peer holds: the rank has read the same place of others, never of that one.

The places are those of a window that the rank read for the wrong element, at the element's own index.
What the sum lacks must be just what one rank that was not read holds there, or all of those together.

Not modelled: summands that peers were to send, weights, and sums that the rank adds up in rounds.
"""

from __future__ import annotations

import math

from harness.checkers.reads import Reads, written
from harness.checkers.results import Wrong
from harness.checkers.wording import decoded, elements
from harness.record import Event


def unread(reads: Reads, wrong: Wrong) -> tuple[list[str], list[int]]:
    """Evidence and events of the reads that a wrong sum lacks; empty where there are none."""
    run, dtype, size = reads.run, str(wrong.dtype)[6:], len(wrong.given_bytes)
    if not isinstance(wrong.given, int | float) or isinstance(wrong.given, bool):
        return [], []
    lack = float(wrong.expected) - float(wrong.given)
    places: dict[tuple[int, int], dict[int, tuple[int, Event]]] = {}
    for at, read, lo, _ in reads.elements(wrong):
        own_index = not ((lo - read.lo) // size - wrong.index) % wrong.numel
        if own_index and run.names[read.window].kind == "window":
            places.setdefault((read.window, lo), {})[read.peer] = (at, read)
    for (window, lo), seen in places.items():
        missing: dict[int, tuple[int, float]] = {}
        for peer in range(run.ranks):
            held = None if peer in seen else _held(reads, window, peer, lo, size)
            if held is not None:
                value = decoded(held[1], dtype)
                missing |= {peer: (held[0], float(value[0]))} if value else {}
        whole = math.fsum(value for _, value in missing.values())
        just = [peer for peer, (_, value) in missing.items() if _alike(value, lack)]
        peers = just if len(just) == 1 else list(missing) if _alike(whole, lack) else []
        if peers and lack:
            where = elements(run, window, lo, lo + size)
            lines = [
                f"rank {reads.rank} never read {where} of rank {peer}, which held {missing[peer][1]:g}"
                for peer in peers
            ]
            lines[-1] += ": just what the sum lacks"
            return lines, [missing[peer][0] for peer in peers]
    return [], []


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)


def _held(reads: Reads, window: int, peer: int, lo: int, size: int) -> tuple[int, bytes] | None:
    """The last write to a place before the result's, and what it left there."""
    for index, event in reversed(reads.writes.get((window, peer), ())):
        if index < reads.end and event.lo < lo + size and lo < event.hi:
            data = written(event, lo, size)
            return None if data is None else (index, data)
    return None
