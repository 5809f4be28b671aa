"""Proving that a wrong sum comes from summands that were read at the wrong time.

The k-th reads of all places by one call make a sum: its *turn*. A turn is the one behind the result
if it adds up to the wrong value, or holds the poison that became the result's NaN. The proof is
that other values of the same places, written later or replaced earlier, add up to the right one.
Not modelled: weights, products, summands that pass through other dtypes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.checkers.reads import Proof, Reads
from harness.checkers.results import Wrong, is_poison
from harness.checkers.wording import decoded, encoded
from harness.record import Event

_MIXTURES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Summand:
    """One element that was read. others: its place's other values, each with the proof."""

    at: int
    read: Event
    lo: int
    held: bytes
    value: float
    early: list[tuple[float, Proof]]
    late: list[tuple[float, Proof]] = field(default_factory=list)


def turns(reads: Reads, wrong: Wrong) -> list[list[Summand]]:
    """The summands of the wrong element, turn by turn, in order."""
    dtype = str(wrong.dtype)[6:]
    size = len(wrong.given_bytes)
    if not decoded(wrong.given_bytes, dtype):
        return []
    found: dict[tuple[Any, ...], list[Summand]] = {}
    groups = _groups(reads)
    for at, read, lo, held in reads.elements(wrong):
        if ((lo - read.lo) // size - wrong.index) % wrong.numel:
            continue  # a summand of element i is element i of what was read, or of a row of it
        early, late = (
            [
                (float(decoded(other, dtype)[0]), proof)
                for other, proof in reads.others(at, read, lo, held, late=late)
            ]
            for late in (False, True)
        )
        value = float(decoded(held, dtype)[0])
        found.setdefault(groups[at], []).append(Summand(at, read, lo, held, value, early, late))
    return list(found.values())


def _groups(reads: Reads) -> dict[int, tuple[Any, ...]]:
    """Reads by event index, grouped: those of one call until it reads the same bytes again."""
    groups: dict[tuple[Any, ...], list[Event]] = {}
    found: dict[int, tuple[Any, ...]] = {}
    count: Counter[tuple[Any, ...]] = Counter()
    for at, read, _ in reads.reads:
        call = (read.code, read.lasti)
        if any(
            reads.memory(read) == reads.memory(other)
            and read.lo < other.hi and other.lo < read.hi
            for other in groups.get(call, ())
        ):
            count[call] += 1
            groups[call] = []
        groups.setdefault(call, []).append(read)
        found[at] = (*call, count[call])
    return found


def summed(reads: Reads, wrong: Wrong) -> Proof | None:
    """The read that a wrong sum comes from, if other values of what was read make it right."""
    lack = float(wrong.expected) - float(wrong.given)
    if not math.isfinite(lack):
        return None
    adding = [t for t in turns(reads, wrong) if sum(s.value for s in t) == wrong.given]
    for pick in (_early, _late, _either):
        for turn in adding:
            places = [
                changes for summand in turn
                if (changes := [(v - summand.value, proof) for v, proof in pick(summand)])
            ]
            found = _mixed(places, lack) if pick is _either else _explaining(places, lack)
            if found is not None:
                return found
    return None


def _early(summand: Summand) -> Sequence[tuple[float, Proof]]:
    return summand.early


def _late(summand: Summand) -> Sequence[tuple[float, Proof]]:
    return summand.late


def _either(summand: Summand) -> Sequence[tuple[float, Proof]]:
    return [*summand.early, *summand.late]


def _explaining(places: list[list[tuple[float, Proof]]], lack: float) -> Proof | None:
    """The read of the one place whose other value makes up for what a sum lacks, or, if only all
    places together do, of the first."""
    exact = [
        next(proof for change, proof in others if change == lack)
        for others in places if any(change == lack for change, _ in others)
    ]
    if len(exact) == 1:
        return exact[0]
    for nth in range(max(map(len, places), default=0)):
        chosen = [others[min(nth, len(others) - 1)] for others in places]
        if sum(change for change, _ in chosen) == lack:
            return chosen[0][1]
    return None


def _mixed(places: list[list[tuple[float, Proof]]], lack: float) -> Proof | None:
    """The first read of the only smallest set of changes that makes up for what a sum lacks."""
    if math.prod(len(others) + 1 for others in places) > _MIXTURES_MAX:
        return None
    kept: list[tuple[float, Proof] | None] = [None]
    fitting = [
        changes
        for mixture in itertools.product(*(kept + list(others) for others in places))
        if (changes := [change for change in mixture if change is not None])
        and sum(change for change, _ in changes) == lack
    ]
    least = min(map(len, fitting), default=0)
    smallest = [changes for changes in fitting if len(changes) == least]
    return smallest[0][0][1] if len(smallest) == 1 else None


def poisoned(reads: Reads, wrong: Wrong) -> Proof | None:
    """The read of unwritten memory behind a NaN, if the values written there later are what the
    other summands leave of the expected sum."""
    for _, blank, missing in _blank_turns(reads, wrong):
        if len(blank) == 1:
            proof = next((proof for value, proof in blank[0].early if value == missing), None)
            if proof is not None:
                return proof
        elif all(s.early for s in blank) and sum(s.early[0][0] for s in blank) == missing:
            return blank[0].early[0][1]
    return None


def spread(reads: Reads, wrong: Wrong) -> Proof | None:
    """The read of a NaN in a sum that only one smallest set of other values makes right. The NaN may
    be unwritten memory, or another rank's wrong sum written over the summand."""
    for turn in turns(reads, wrong):
        nans = [i for i, s in enumerate(turn) if not math.isfinite(s.value)]
        own = [[] if i in nans else [(s.value, None)] for i, s in enumerate(turn)]
        choices = [
            [*mine, *((v, proof) for v, proof in (*s.early, *s.late) if math.isfinite(v))]
            for mine, s in zip(own, turn, strict=True)
        ]
        if not nans or math.prod(map(len, choices)) > _MIXTURES_MAX:
            continue
        fitting = [
            mixture for mixture in itertools.product(*choices)
            if sum(value for value, _ in mixture) == wrong.expected
        ]
        changes = [sum(proof is not None for _, proof in mixture) for mixture in fitting]
        if changes and changes.count(min(changes)) == 1:
            best = fitting[changes.index(min(changes))]
            proofs = [proof for i in nans if (proof := best[i][1]) is not None]
            return min(proofs, key=lambda proof: proof.late)
    return None


def due(reads: Reads, wrong: Wrong) -> Iterator[tuple[Proof, bytes]]:
    """Reads of unwritten memory, each with the bytes that the other summands say were due there, or
    with the expected ones as those of a copy."""
    for turn, blank, missing in _blank_turns(reads, wrong):
        if len(blank) == 1 and len(turn) > 1:
            yield _blank(blank[0]), encoded(missing, str(wrong.dtype)[6:])
    for at, read, lo, data in reads.elements(wrong):
        if is_poison(data) and reads.untouched(at, read, lo, len(data)):
            yield Proof(at, read, unwritten=True, lo=lo), wrong.expected_bytes


def first_blank(reads: Reads, wrong: Wrong) -> Proof | None:
    """A read of poison: one written later first, at the element's own place if there is one."""
    size = len(wrong.given_bytes)
    ranked: dict[int, Proof] = {}
    for at, read, lo, data in reads.elements(wrong):
        if is_poison(data) and reads.untouched(at, read, lo, len(data)):
            proof = next(
                (found for _, found in reads.others(at, read, lo, data, late=False)),
                Proof(at, read, unwritten=True, lo=lo),
            )
            elsewhere = ((lo - read.lo) // size - wrong.index) % wrong.numel != 0
            ranked.setdefault(2 * (proof.write is None) + elsewhere, proof)
    return ranked[min(ranked)] if ranked else None


def _blank(summand: Summand) -> Proof:
    return Proof(summand.at, summand.read, unwritten=True, lo=summand.lo)


def _blank_turns(
    reads: Reads, wrong: Wrong
) -> Iterator[tuple[list[Summand], list[Summand], float]]:
    """Turns that read unwritten memory: all summands, the blank ones, what they should add up to."""
    for turn in turns(reads, wrong):
        blank = [
            s for s in turn
            if is_poison(s.held) and reads.untouched(s.at, s.read, s.lo, len(s.held))
        ]
        rest = sum(s.value for s in turn if s not in blank)
        if blank and math.isfinite(rest):
            yield turn, blank, float(wrong.expected) - rest
