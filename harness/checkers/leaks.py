"""Signal leaks: credits left over at normal termination that break the next round.

A cell whose counts are taken back (somebody adds a negative amount to it) comes back to where it was
with each call of its program; a call is a dispatch. Amounts are summed over the operations that each
dispatch issued, so the sums are the same on every schedule. What the first calls of each program leave
may be credits that are to stay, or that another program takes back. A leak is what is left in the end
beyond the most (below the least) of that. In one dispatch it is more than what was given before its
giver had waited for any cell.

Not modelled: cells that a Set, store or put writes (a reset makes up for what is left), credits given
by a first dispatch and never taken back. Source: algorithms.md section 6.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.checkers.wording import actor, elements, finding
from harness.finding import Finding
from harness.record import Run

Key = tuple[int, int, int]  # window, rank, byte offset


@dataclass(slots=True)
class _Counts:
    """What each dispatch did to one cell. given, taken: by dispatch and rank; first: given by lanes
    that had waited for nothing yet. last: by rank, its last notify."""

    given: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    taken: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    first: int = 0
    last: dict[int, int] = field(default_factory=dict)
    back: int = -1  # the last event that took something back
    awaited: bool = False

    def net(self, dispatch: int) -> int:
        """What a dispatch left of it."""
        return self.given[dispatch].total() - self.taken[dispatch].total()


def leaks(run: Run) -> Iterable[Finding]:
    """At most one finding: the first cell that leaks."""
    if run.ended != "returned" or run.failures or run.dead or run.peers_lost:
        return
    counted, written = _counted(run)
    for key in sorted(counted):
        counts = counted[key]
        if key in written or not counts.awaited or counts.back < 0:
            continue
        found = _leaking(counts, run.programs)
        if found is not None:
            yield _finding(run, key, counts, found)
            return


def _counted(run: Run) -> tuple[dict[Key, _Counts], set[Key]]:
    """The cells that are only added to, with their counts, and those that are written otherwise."""
    counted: dict[Key, _Counts] = defaultdict(_Counts)
    written: set[Key] = set()
    waited: set[int] = set()  # lanes
    wide: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for index, (owner, kind, window, peer, lo, hi, value, *_) in enumerate(run.raw):
        if kind in ("notify", "signal"):
            key = window, peer, lo
            if isinstance(value, tuple):
                written.add(key)
            else:
                _add(run, counted[key], index, owner, value, first=owner not in waited)
        elif kind == "wait":
            waited.add(owner)
            counted[window, peer, lo].awaited = True
        elif kind in ("store", "land") or (
            kind in ("deliver", "deliver_part") and type(value) is not int
        ):
            wide[window, peer].append((lo, hi))
    for window, peer, lo in counted:
        if any(a < lo + 4 and lo < b for a, b in wide.get((window, peer), ())):
            written.add((window, peer, lo))
    return counted, written


def _add(run: Run, counts: _Counts, index: int, lane: int, value: int, *, first: bool) -> None:
    dispatch = bisect_right(run.dispatched[lane], index) - 1 if run.dispatched else 0
    rank = run.lanes[lane][0]
    if value < 0:
        counts.taken[dispatch][rank] -= value
        counts.back = index
        return
    counts.given[dispatch][rank] += value
    counts.last[rank] = index
    if first:
        counts.first += value


def _leaking(counts: _Counts, programs: Sequence[object]) -> int | None:
    """The dispatch that leaks, or None. programs: by dispatch, what each rank ran."""
    last = max((*counts.given, *counts.taken))
    if len(programs) <= 1:
        total = counts.net(0)
        return 0 if not 0 <= total <= counts.first else None
    most = least = held = 0
    outside: list[int] = []
    for dispatch in range(last + 1):
        held += counts.net(dispatch)
        if programs[dispatch] not in programs[:dispatch]:
            most, least = max(most, held), min(least, held)
        elif counts.net(dispatch) and not least <= held <= most:
            outside.append(dispatch)
    return outside[0] if outside and not least <= held <= most else None


def _finding(run: Run, key: Key, counts: _Counts, dispatch: int) -> Finding:
    window, rank, lo = key
    given, taken = counts.given[dispatch], counts.taken[dispatch]
    net = counts.net(dispatch)
    cell = f"{elements(run, window, lo, lo + 4)} of rank {rank}"
    culprit = _odd_one(given, rank) if net > 0 else rank
    call = f"dispatch {dispatch}" if run.dispatched and len(run.dispatched[0]) > 1 else "the program"
    effect = (
        f"the next round's waits pass {net} too early" if net > 0
        else f"the next round's waits lack {-net}"
    )
    marked = counts.last.get(culprit, counts.back) if net > 0 else counts.back
    shares = [
        f"rank {giver} gave {amount}" for giver, amount in sorted(given.items())
    ] + [f"rank {taker} took back {amount}" for taker, amount in sorted(taken.items())]
    return finding(
        "deadlock", "signal_leak", culprit,
        f"{call} leaves {net:+d} on {cell}: {given.total()} given, {taken.total()} taken back; {effect}",
        sites=(run.site(run.events[marked]), run.site(run.events[counts.back])),
        evidence=(
            f"{call}: {', '.join(shares)}",
            *_last(run, "given", marked if net > 0 else -1), *_last(run, "taken back", counts.back),
        ),
        events=(marked, counts.back),
    )


def _last(run: Run, what: str, at: int) -> list[str]:
    return [f"last {what} by {actor(run, run.events[at])}, event {at}"] if at >= 0 else []


def _odd_one(given: Counter[int], owner: int) -> int:
    """The rank that gave most, if there is one; of equals the owner, else the lowest."""
    most = max(given.values())
    best = sorted(rank for rank, amount in given.items() if amount == most)
    return owner if owner in best and len(best) > 1 else best[0]
