"""Where a value that is not in its place is found instead, and where a result lies.

Values of test data are unique, so a value that was due in one place of a window and was written to
another place of it tells of a wrong offset, peer or base on one of the two sides. Which side it is
the record does not say. A result that the host hands out as part of a prepared tensor is found in
it by its address. Zeros, single bytes and poison are too common to tell anything, and so is what stands
on another rank whose own results hold it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.checkers.reads import Proof, Reads
from harness.checkers.results import Wrong, is_poison
from harness.checkers.wording import actor, decoded, elements, of_rank, shown
from harness.record import Event, Run


@dataclass(frozen=True, slots=True)
class Stray:
    """A value that was written at `event`, bytes lo..hi of its window, and due elsewhere."""

    at: int
    event: Event
    lo: int
    hi: int

    def line(self, run: Run, due: bytes, dtype: str, place: tuple[int, int, int]) -> str:
        """`the 3.0 that was due there went to 'w'[1] of rank 2, 4 bytes behind it: …`."""
        event = self.event
        value = shown(decoded(due, dtype))[1:-1] or due.hex()
        window, rank, lo = place
        where = f"{elements(run, window, self.lo, self.hi)}{of_rank(run, event)}"
        if event.peer == rank:
            off = abs(self.lo - lo)
            side = "behind" if self.lo > lo else "before"
            where += f", {off} byte{'s' if off > 1 else ''} {side} it"
        return f"the {value} that was due there was written to {where}: {actor(run, event)}, " \
               f"event {self.at}"


def stray(reads: Reads, proof: Proof, due: bytes) -> Stray | None:
    """Where else in the window that `proof` read the bytes that were due were written: elsewhere on
    the same rank before on another one, the last time before the read before any later one."""
    if len(due) < 2 or not any(due) or is_poison(due):
        return None
    window, rank = reads.memory(proof.read)
    found: dict[tuple[bool, bool], Stray] = {}
    for (number, owner), writes in reads.writes.items():
        if number != window:
            continue
        for at, event in writes:
            begin = event.value.find(due) if isinstance(event.value, bytes) else -1
            if begin < 0 or len(event.value) != event.hi - event.lo:
                continue
            if owner not in (rank, -1) and _belongs(reads.run, owner, due):
                continue
            lo = event.lo + begin
            if _is_source(reads.run, number, owner, lo, len(due)):
                continue
            if owner == rank and lo == proof.lo:
                return None  # it was written there too
            later = at > proof.read_at
            here = Stray(at, event, lo, lo + len(due))
            if later:
                found.setdefault((owner != rank, later), here)
            else:
                found[owner != rank, later] = here
    return found[min(found)] if found else None


def _is_source(run: Run, window: int, rank: int, lo: int, size: int) -> bool:
    """Whether those bytes are what a put of that rank reads: its value belongs there."""
    for operation, (source, begin) in run.sources.items():
        if source == window and begin <= lo:
            issue = run.issue(operation)
            if run.rank_of(issue) == rank and lo + size <= begin + issue.hi - issue.lo:
                return True
    return False


def _belongs(run: Run, rank: int, value: bytes) -> bool:
    """Whether a result expected of `rank` holds the value."""
    for by_rank in (run.expected or {}).values():
        expected = by_rank[rank] if rank < len(by_rank) else None
        if isinstance(expected, torch.Tensor) and expected.numel():
            held = expected.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            at = held.find(value)
            while at >= 0 and at % len(value):
                at = held.find(value, at + 1)
            if at >= 0:
                return True
    return False


def misread(reads: Reads, wrong: Wrong) -> tuple[Proof, Stray] | None:
    """The last read of the wrong element's bytes, if the expected ones were written elsewhere
    in that window and never there."""
    seen = [found for found in reads.elements(wrong) if found[3] == wrong.given_bytes]
    for at, read, lo, data in reversed(seen):
        if not any(data) or is_poison(data):
            continue
        proof = Proof(at, read, lo=lo)
        found = stray(reads, proof, wrong.expected_bytes)
        if found is not None:
            return proof, found
    return None


def place_of(run: Run, wrong: Wrong) -> tuple[int, int, int] | None:
    """The host tensor's number and the bytes lo, hi in which the wrong element lies, or None."""
    size = len(wrong.given_bytes)
    for known in run.names:
        for region in known.regions.values() if known.kind == "host tensor" else ():
            data = region.data
            if isinstance(data, torch.Tensor) and data.numel():
                lo = wrong.address - data.data_ptr()
                if 0 <= lo <= known.nbytes - size:
                    return known.number, lo, lo + size
    return None


def last_store(run: Run, place: tuple[int, int, int]) -> tuple[int, Event] | None:
    """The last write to the place of a result."""
    window, lo, hi = place
    for index in range(len(run.raw) - 1, -1, -1):
        event = run.events[index]
        writes = event.kind in ("store", "land") and event.window == window
        if writes and event.lo < hi and lo < event.hi:
            return index, event
    return None


def unstored(run: Run, place: tuple[int, int, int], rank: int) -> tuple[list[str], list[int]]:
    """Evidence for a result that nobody stored: what the rank stored in that tensor instead."""
    window, lo, hi = place
    lines = [f"nothing in this run wrote {elements(run, window, lo, hi)}, where that result lies"]
    marks = []
    for index, event in enumerate(run.events):
        if event.kind == "store" and event.window == window and run.rank_of(event) == rank:
            name = run.names[window].name
            what = elements(run, window, event.lo, event.hi) if event.hi > event.lo else (
                f"no element of {name!r}"
            )
            lines.append(f"{actor(run, event)} wrote {what}, event {index}")
            marks.append(index)
    if not marks:
        lines.append(f"rank {rank} stored nothing in {run.names[window].name!r}")
    return lines[:4], marks[:3]
