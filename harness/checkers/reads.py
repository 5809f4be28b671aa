"""Proving from the record that a wrong result comes from a read at the wrong time.

A read (load, remote_load, the read of a get) by the rank with the wrong result is paired with a
write to the bytes it read: the next one that changed them (it read too early), or the last ones
before it (it read too late: what it wanted was overwritten). The pair is proof when it ties to the
result:

    copied   the wrong element's bytes were read there, and the expected ones came later or earlier
    poison   unwritten memory was read, and the wrong element is its poison
    summed   the other value of that place, or of all such places, is just what the result lacks

Values beyond 256 bytes, of which the record keeps digests, are rebuilt from the smaller writes
that made them and checked against the digest. Not modelled: dtype conversions, products, larger
single writes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from harness.checkers.results import Wrong, is_poison
from harness.checkers.wording import actor, decoded, elements
from harness.fabric.memory import POISON, filled
from harness.record import Event, Run

_READS = frozenset(("load", "remote_load"))
_WRITES = frozenset(("deliver", "store", "land"))
_DONE = {"store": "was done", "deliver": "was delivered", "land": "had landed"}


@dataclass(frozen=True, slots=True)
class Proof:
    """A read and the write that it should have come after, or (`late`) before.

    unwritten: it read poison; without a write, nobody ever wrote there.
    """

    read_at: int
    read: Event
    write_at: int = -1
    write: Event | None = None
    issue_at: int = -1
    unwritten: bool = False
    late: bool = False

    def when(self, run: Run) -> str:
        """`before rank 0's put #3 at … was delivered`."""
        if self.write is None:
            return "where nobody ever wrote"
        return f"{'after' if self.late else 'before'} {actor(run, self.write)} " \
               f"{_DONE[self.write.kind]}"

    def lines(self, run: Run) -> list[str]:
        """The two accesses and the missing edge."""
        read, write = self.read, self.write
        memory = elements(run, read.window, read.lo, read.hi)
        held = " (unwritten memory)" if self.unwritten else ""
        lines = [
            f"{actor(run, read)} read {memory} of rank {read.peer}{held} at event {self.read_at}"
        ]
        if write is None:
            return [*lines, "nothing in this run ever wrote there"]
        who = actor(run, write)
        order = "before" if self.late else "after"
        if self.issue_at < 0:
            lines.append(f"{who} wrote there at event {self.write_at}, {order} the read")
        else:
            lines.append(
                f"{who} was issued at event {self.issue_at}, delivered at event {self.write_at}, "
                f"{order} the read at event {self.read_at}"
            )
        if self.late:
            lines.append("missing edge: the read before the write that replaced what was due")
        else:
            flying = 0 <= self.issue_at < self.read_at
            state = "the operation was in flight" if flying else "the write had not begun"
            lines.append(f"missing edge: the write before the read; at the read {state}")
        return lines

    def marks(self) -> list[int]:
        """Events for a timeline."""
        return [i for i in (self.read_at, self.issue_at, self.write_at) if i >= 0]


class Reads:
    """The reads of one rank, each with the writes to what it read."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run = run
        self.shared = {
            known.number for known in run.names
            if known.kind == "host tensor" and known.name not in run.private
        }
        self.issued = {
            e.number: i for i, e in enumerate(run.events) if e.number >= 0 and e.owner < run.ranks
        }
        self.writes: dict[tuple[int, int], list[tuple[int, Event]]] = {}
        for index, event in enumerate(run.events):
            if event.kind in _WRITES:
                self.writes.setdefault(self._memory(event), []).append((index, event))
        self.reads: list[tuple[int, Event, bytes]] = []
        self.digested: list[tuple[int, Event]] = []  # reads whose bytes cannot be rebuilt
        for index, event in enumerate(run.events):
            mine = event.kind in _READS and event.owner == rank
            if mine or (event.kind == "read" and run.lane_of(event) == rank):
                data = self._content(index, event)
                if data is None:
                    self.digested.append((index, event))
                else:
                    self.reads.append((index, event, data))

    def _memory(self, event: Event) -> tuple[int, int]:
        return event.window, -1 if event.window in self.shared else event.peer

    def _touching(self, read: Event, lo: int, hi: int) -> Iterator[tuple[int, Event]]:
        for index, event in self.writes.get(self._memory(read), ()):
            if event.lo < hi and lo < event.hi:
                yield index, event

    def _content(self, at: int, read: Event) -> bytes | None:
        """The bytes that a read saw, rebuilt from the writes before it if it has a digest only."""
        size = read.hi - read.lo
        if len(read.value) == size:
            return bytes(read.value)
        nbytes = self.run.names[read.window].nbytes
        for blank in (filled(POISON, nbytes), bytes(nbytes)):
            memory = bytearray(blank)
            for index, write in self._touching(read, read.lo, read.hi):
                data = _written(write, write.lo, write.hi - write.lo)
                if index < at and data is not None and write.lo >= 0:
                    memory[write.lo : write.hi] = data
            data = bytes(memory[read.lo : read.hi])
            if blake2b(data, digest_size=16).digest() == read.value:
                return data
        return None

    def proof(self, wrong: Wrong) -> Proof | None:
        """The read behind a wrong result, if the record proves one."""
        if not wrong.given_bytes:
            return None
        return (
            self._copied(wrong, late=False) or self._copied(wrong, late=True) or self._whole(wrong)
            or (self._poisoned(wrong) if wrong.poison else None)
            or self._summed(wrong, late=False) or self._summed(wrong, late=True)
        )

    def _elements(self, wrong: Wrong) -> Iterator[tuple[int, Event, int, bytes]]:
        """Every element read with the result's dtype: event index, read, byte offset, bytes."""
        size = len(wrong.given_bytes)
        fitting = (str(wrong.dtype)[6:], "uint8")  # a host's window of bytes is viewed as anything
        for at, read, data in self.reads:
            if self.run.names[read.window].dtype in fitting:
                for offset in range(0, len(data) - size + 1, size):
                    yield at, read, read.lo + offset, data[offset : offset + size]

    def _others(
        self, at: int, read: Event, lo: int, held: bytes, *, late: bool
    ) -> Iterator[tuple[bytes, Proof]]:
        """Other values of the place at `lo`: later ones, or earlier ones that were replaced."""
        size = len(held)
        replaced: tuple[int, Event] | None = None
        writes = list(self._touching(read, lo, lo + size))
        for index, write in reversed(writes) if late else writes:
            value = _written(write, lo, size)
            if value is None or (index < at) is not late:
                continue
            if value == held:
                replaced = (index, write)
            elif not late:
                issue = self.issued.get(write.number, -1)
                yield value, Proof(at, read, index, write, issue, is_poison(held))
            elif replaced is not None:
                issue = self.issued.get(replaced[1].number, -1)
                yield value, Proof(at, read, *replaced, issue, late=True)

    def _copied(self, wrong: Wrong, *, late: bool) -> Proof | None:
        fetched = set()  # places where the right value was read in its turn, so not to blame
        seen = list(self._elements(wrong))
        for at, read, lo, data in seen if late else reversed(seen):
            place = (*self._memory(read), lo)
            if data == wrong.expected_bytes:
                fetched.add(place)
            if data != wrong.given_bytes or place in fetched:
                continue
            for value, proof in self._others(at, read, lo, data, late=late):
                if value == wrong.expected_bytes:
                    return proof
                if wrong.poison:
                    break  # what followed the first write is no answer to unwritten memory
        return None

    def _whole(self, wrong: Wrong) -> Proof | None:
        """A result too large for the record that is, as a whole, what an early read saw."""
        given, expected = (
            blake2b(data, digest_size=16).digest()
            for data in (wrong.all_given, wrong.all_expected)
        )
        for at, read in self.digested:
            for index, write in self._touching(read, read.lo, read.hi):
                if index > at and read.value == given and write.value == expected:
                    issue = self.issued.get(write.number, -1)
                    return Proof(at, read, index, write, issue, wrong.poison)
        return None

    def _poisoned(self, wrong: Wrong) -> Proof | None:
        """A read of poison: one written later first, at the element's own place if there is one."""
        size = len(wrong.given_bytes)
        ranked: dict[int, Proof] = {}
        for at, read, lo, data in self._elements(wrong):
            if is_poison(data):
                proof = next(
                    (found for _, found in self._others(at, read, lo, data, late=False)),
                    Proof(at, read, unwritten=True),
                )
                elsewhere = ((lo - read.lo) // size - wrong.index) % wrong.numel != 0
                ranked.setdefault(2 * (proof.write is None) + elsewhere, proof)
        return ranked[min(ranked)] if ranked else None

    def _turns(self) -> dict[int, tuple[Any, ...]]:
        """Reads by event index, grouped: those of one call until it reads the same bytes again."""
        groups: dict[tuple[Any, ...], list[Event]] = {}
        turns: dict[int, tuple[Any, ...]] = {}
        count: Counter[tuple[Any, ...]] = Counter()
        for at, read, _ in self.reads:
            call = (read.code, read.lasti)
            if any(
                self._memory(read) == self._memory(other)
                and read.lo < other.hi and other.lo < read.hi
                for other in groups.get(call, ())
            ):
                count[call] += 1
                groups[call] = []
            groups.setdefault(call, []).append(read)
            turns[at] = (*call, count[call])
        return turns

    def _summed(self, wrong: Wrong, *, late: bool) -> Proof | None:
        """One call's k-th reads of all places whose sum is the result, and what they missed."""
        dtype = str(wrong.dtype)[6:]
        lack = float(wrong.expected) - float(wrong.given)
        size = len(wrong.given_bytes)
        if not math.isfinite(lack) or not decoded(wrong.given_bytes, dtype):
            return None
        sums: dict[tuple[Any, ...], float] = {}
        changes: dict[tuple[Any, ...], list[list[tuple[float, Proof]]]] = {}
        turns = self._turns()
        for at, read, lo, held in self._elements(wrong):
            if ((lo - read.lo) // size - wrong.index) % wrong.numel:
                continue  # a summand of element i is element i of what was read, or of a row of it
            turn = turns[at]
            value = decoded(held, dtype)[0]
            sums[turn] = sums.get(turn, 0) + value
            others = [
                (decoded(other, dtype)[0] - value, proof)
                for other, proof in self._others(at, read, lo, held, late=late)
            ]
            if others:
                changes.setdefault(turn, []).append(others)
        for turn, places in changes.items():
            if sums[turn] == wrong.given:
                found = _explaining(places, lack)
                if found is not None:
                    return found
        return None


def _explaining(places: list[list[tuple[float, Proof]]], lack: float) -> Proof | None:
    """The read of the one place whose other value makes up for what a sum lacks, or, if only all
    places together do, of the first."""
    exact = [
        next(proof for change, proof in others if change == lack)
        for others in places if any(change == lack for change, _ in others)
    ]
    if len(exact) == 1:
        return exact[0]
    for nth in range(max(map(len, places))):
        chosen = [others[min(nth, len(others) - 1)] for others in places]
        if sum(change for change, _ in chosen) == lack:
            return chosen[0][1]
    return None


def _written(event: Event, lo: int, size: int) -> bytes | None:
    """Bytes lo..lo+size as a write left them; None where it left them partly, or only a digest."""
    value = event.value
    if type(value) is int:
        value = (value & 0xFFFFFFFF).to_bytes(4, "little")
    if not isinstance(value, bytes) or lo < event.lo or lo + size > event.hi:
        return None
    if len(value) != event.hi - event.lo:
        return None
    return bytes(value[lo - event.lo : lo - event.lo + size])
