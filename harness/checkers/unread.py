"""A wrong sum of what peers hold: the rank has read the same place of some, but not of each just once.

The reads are those of one place of a window, at the wrong element's own index, that add up to the wrong
value (the last ones before it was stored). What was due must be what all ranks hold there, added up, or
what was read and what one more rank holds.

Not modelled: summands that peers were to send, weights, sums that the rank adds up in rounds.
"""

from __future__ import annotations

import math
from collections import Counter

from harness.checkers.reads import Reads, written
from harness.checkers.results import Wrong
from harness.checkers.wording import decoded, elements
from harness.record import Event

Held = dict[int, tuple[int, float]]  # by rank: an event, and the value of the place


def unread(reads: Reads, wrong: Wrong) -> tuple[list[str], list[int]]:
    """Evidence of what a wrong sum lacks or holds twice, and events to mark; empty if nothing tells."""
    if not isinstance(wrong.given, int | float) or isinstance(wrong.given, bool):
        return [], []
    run, dtype, size = reads.run, str(wrong.dtype)[6:], len(wrong.given_bytes)
    places: dict[tuple[int, int], list[tuple[int, Event, float]]] = {}
    for at, read, lo, data in reads.elements(wrong):
        period = min(wrong.numel, (read.hi - read.lo) // size)  # a chunk of the result, or rows of it
        own_index = not ((lo - read.lo) // size - wrong.index) % period
        if own_index and run.names[read.window].kind == "window" and decoded(data, dtype):
            places.setdefault((read.window, lo), []).append((at, read, float(decoded(data, dtype)[0])))
    for (window, lo), seen in places.items():
        added = _added(seen, wrong)
        if len(added) > 1 or (added and added[0][1].peer == reads.rank):
            held = {read.peer: (at, value) for at, read, value in added}
            others = _others(reads, (window, lo, size), dtype, held)
            missing = _missing(wrong, held, others)
            where = elements(run, window, lo, lo + size)
            count = Counter(read.peer for _, read, _ in added)
            often = {peer: times for peer, times in count.items() if times > 1}
            if missing is not None and (missing or often):
                twice = {peer: (times, held[peer][1]) for peer, times in often.items()}
                marks = [at for at, _ in missing.values()] + [held[peer][0] for peer in often]
                return _lines(reads.rank, where, missing, twice), marks
    return [], []


def _added(seen: list[tuple[int, Event, float]], wrong: Wrong) -> list[tuple[int, Event, float]]:
    """The last reads of a place that make up the wrong value."""
    for first in range(len(seen) - 1, -1, -1):
        if _alike(math.fsum(value for _, _, value in seen[first:]), float(wrong.given)):
            return seen[first:]
    return []


def _missing(wrong: Wrong, held: Held, others: Held) -> Held | None:
    """The ranks of `others` that were due as well; None where that does not explain it."""
    due = float(wrong.expected)
    everything = [value for _, value in (*held.values(), *others.values())]
    if _alike(math.fsum(everything), due):
        return others
    lack = due - float(wrong.given)
    just = {peer: one for peer, one in others.items() if lack and _alike(one[1], lack)}
    return just if len(just) == 1 else None


def _lines(rank: int, where: str, missing: Held, often: Held) -> list[str]:
    """often: how many times a rank was read instead of an event."""
    lines = [
        f"rank {rank} never read {where} of rank {peer}, which held {value:g}"
        for peer, (_, value) in missing.items()
    ]
    lines += [
        f"rank {rank} read {where} of rank {peer} {times} times, which held {value:g}"
        for peer, (times, value) in often.items()
    ]
    lines[-1] += ": just what makes the sum wrong"
    return lines


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)


def _others(reads: Reads, place: tuple[int, int, int], dtype: str, seen: Held) -> Held:
    """What the ranks that were not read hold in a place (window, first byte, how many) by the time that
    the result was stored."""
    window, lo, size = place
    found: Held = {}
    for peer in range(reads.run.ranks):
        for index, event in reversed(reads.writes.get((window, peer), ()) if peer not in seen else ()):
            if index < reads.end and event.lo < lo + size and lo < event.hi:
                value = decoded(written(event, lo, size) or b"", dtype)
                if value:
                    found[peer] = (index, float(value[0]))
                break
    return found
