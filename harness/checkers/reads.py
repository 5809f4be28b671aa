"""Proving from the record that a wrong result comes from a read at the wrong time.

A read (load, remote_load, the read of a get) by the rank with the wrong result is paired with a
write to the bytes it read: the next one that changed them (it read too early), or the last ones
before it (it read too late: what it wanted was overwritten). The pair is proof when it ties to the
result:

    copied   the wrong element's bytes were read there, and the expected ones came later or earlier
    poison   unwritten memory was read, and the wrong element is its poison
    summed   the other value of that place, or of all such places, is just what the result lacks

Where the result lies in a host tensor, only reads before the store that put it there count; where
the rank had copied it from memory of its own, those before that copy come first.

Values beyond 256 bytes, of which the record keeps digests, are rebuilt from the smaller writes
that made them and checked against the digest. Not modelled: dtype conversions, products, larger
single writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from harness.checkers.results import Wrong, is_poison
from harness.checkers.wording import actor, elements, of_rank
from harness.fabric.memory import POISON, filled
from harness.record import CHANGES, FETCHED, WRITTEN, Event, Run

_READS = frozenset(("load", "remote_load"))
_DONE = {
    "store": "was done", "deliver": "was delivered", "deliver_part": "was delivered in part",
    "land": "had landed", "write_back": "wrote its 64-byte line back",
}


@dataclass(frozen=True, slots=True)
class Proof:
    """A read and the write that it should have come after, or (`late`) before.

    unwritten: it read poison. lo: byte offset of the element in question, where it is known. fetched: the
    event at which an old copy that it read came into the core's cache, else -1.
    """

    read_at: int
    read: Event
    write_at: int = -1
    write: Event | None = None
    issue_at: int = -1
    unwritten: bool = False
    late: bool = False
    lo: int = -1
    fetched: int = -1

    @property
    def in_flight(self) -> bool:
        """Whether the write had been issued and not delivered when the read came."""
        return not self.late and 0 <= self.issue_at < self.read_at

    @property
    def in_order(self) -> bool:
        """Whether the reading lane itself had stored what it read: no edge is missing."""
        write = self.write
        return write is not None and write.kind == "store" and write.owner == self.read.owner

    def when(self, run: Run) -> str:
        """`before rank 0's put #3 at … was delivered`."""
        if self.write is None:
            return "where nobody had written"
        before = "from a copy older than when" if self.fetched >= 0 else "before"
        return f"{'after' if self.late else before} {actor(run, self.write)} " \
               f"{_DONE[self.write.kind]}"

    def what(self, run: Run) -> str:
        """`rank 1's load at … read 'inbox'[0:4] of rank 1 at event 5`."""
        read = self.read
        memory = elements(run, read.window, read.lo, read.hi)
        held = " (unwritten memory)" if self.unwritten else ""
        return (
            f"{actor(run, read)} read {memory}{of_rank(run, read)}{held} at event {self.read_at}"
        )

    def lines(self, run: Run) -> list[str]:
        """The two accesses and the missing edge."""
        lines = [self.what(run)]
        if self.fetched >= 0:
            lines.append(f"it saw the copy of a line that its core had fetched at event {self.fetched}")
        write = self.write
        if write is None:
            return lines
        who = actor(run, write)
        order = "before" if self.late or 0 <= self.write_at < self.read_at else "after"
        if self.issue_at < 0:
            lines.append(f"{who} wrote there at event {self.write_at}, {order} the read")
        else:
            done = "landed" if write.kind == "land" else "delivered"
            lines.append(
                f"{who} was issued at event {self.issue_at}, {done} at event {self.write_at}, "
                f"{order} the read"
            )
        if self.in_order or self.fetched >= 0:
            return lines
        if self.late:
            lines.append("missing edge: the read before the write that replaced what was due")
        else:
            state = "the operation was in flight" if self.in_flight else "the write had not begun"
            lines.append(f"missing edge: the write before the read; at the read {state}")
        return lines

    def marks(self) -> list[int]:
        """Events for a timeline."""
        return [i for i in (self.read_at, self.issue_at, self.write_at) if i >= 0]


class Reads:
    """The reads of one rank, each with the writes to what it read. end: reads from it on are not
    looked at."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run = run
        self.rank = rank
        self.end = len(run.raw)
        self.shared = {
            known.number for known in run.names
            if known.kind == "host tensor" and known.name not in run.private
        }
        self.issued = {
            e.number: i for i, e in enumerate(run.events) if e.number >= 0 and e.owner < len(run.lanes)
        }
        self.writes: dict[tuple[int, int], list[tuple[int, Event]]] = {}
        for index, event in enumerate(run.events):
            if event.kind in CHANGES:
                self.writes.setdefault(self.memory(event), []).append((index, event))
        self.reads: list[tuple[int, Event, bytes]] = []
        self.digested: list[tuple[int, Event]] = []  # reads whose bytes cannot be rebuilt
        for index, event in enumerate(run.events):
            if (event.kind in _READS or event.kind in FETCHED) and run.rank_of(event) == rank:
                data = self._content(index, event)
                if data is None:
                    self.digested.append((index, event))
                else:
                    self.reads.append((index, event, data))

    def memory(self, event: Event) -> tuple[int, int]:
        """The window and rank whose bytes an event touches; a shared host tensor has one part."""
        return event.window, -1 if event.window in self.shared else event.peer

    def touching(self, read: Event, lo: int, hi: int) -> Iterator[tuple[int, Event]]:
        """The writes to bytes lo..hi of what `read` read, in order."""
        for index, event in self.writes.get(self.memory(read), ()):
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
            for index, write in self.touching(read, read.lo, read.hi):
                data = written(write, write.lo, write.hi - write.lo)
                if index < at and data is not None and write.lo >= 0:
                    memory[write.lo : write.hi] = data
            data = bytes(memory[read.lo : read.hi])
            if blake2b(data, digest_size=16).digest() == read.value:
                return data
        return None

    def untouched(self, at: int, read: Event, lo: int, size: int) -> bool:
        """Whether nobody had written to those bytes when they were read at event `at`."""
        return all(index > at for index, _ in self.touching(read, lo, lo + size))

    def ends(self, wrong: Wrong, stored_at: int) -> list[int]:
        """Where to stop looking for reads: the store of the result, and before that each copy of it
        that the rank had made in memory of its own; the earliest first."""
        ends = [self._in_turn(wrong, stored_at)]
        while True:
            self.end = ends[0]
            seen = [found for found in self.elements(wrong) if found[3] == wrong.given_bytes]
            if not seen:
                return ends
            at, read, lo, data = max(seen, key=lambda found: found[0])
            before = [
                (index, write) for index, write in self.touching(read, lo, lo + len(data))
                if index < at
            ]
            own = before and self.run.rank_of(before[-1][1]) == self.rank
            if not own or before[-1][1].kind in WRITTEN:
                return ends
            ends.insert(0, before[-1][0])

    def _in_turn(self, wrong: Wrong, stored_at: int) -> int:
        """Reads of equal bytes that are stored only afterwards are taken to be stored in their order:
        where to stop so that the last read is the one whose turn it is."""
        self.end = stored_at
        seen = sorted({at for at, _, _, data in self.elements(wrong) if data == wrong.given_bytes})
        later = 0
        for index in range(stored_at + 1, len(self.run.raw)):
            event = self.run.events[index]
            if self.run.rank_of(event) != self.rank or not isinstance(event.value, bytes):
                continue
            if event.kind in _READS:
                break
            if event.kind == "store" and wrong.given_bytes in event.value:
                later += 1
        return seen[-1 - later] + 1 if 0 < later < len(seen) else stored_at

    def copied(self, wrong: Wrong) -> Proof | None:
        """The read whose bytes are the wrong element, if it came too early or too late."""
        return (
            self._copied(wrong, late=False) or self._copied(wrong, late=True) or self._whole(wrong)
        )

    def elements(self, wrong: Wrong) -> Iterator[tuple[int, Event, int, bytes]]:
        """Every element read with the result's dtype: event index, read, byte offset, bytes."""
        size = len(wrong.given_bytes)
        fitting = (str(wrong.dtype)[6:], "uint8")  # a host's window of bytes is viewed as anything
        for at, read, data in self.reads:
            if at < self.end and self.run.names[read.window].dtype in fitting:
                for offset in range(0, len(data) - size + 1, size):
                    yield at, read, read.lo + offset, data[offset : offset + size]

    def others(
        self, at: int, read: Event, lo: int, held: bytes, *, late: bool
    ) -> Iterator[tuple[bytes, Proof]]:
        """Other values of the place at `lo`: later ones, or earlier ones that were replaced."""
        size = len(held)
        read_at, at, fetched = at, self.run.fetched.get(at, at), self.run.fetched.get(at, -1)
        unwritten = is_poison(held) and self.untouched(at, read, lo, size)
        replaced: tuple[int, Event] | None = None
        writes = list(self.touching(read, lo, lo + size))
        for index, write in reversed(writes) if late else writes:
            value = written(write, lo, size)
            if value is None or (index < at) is not late:
                continue
            if value == held:
                replaced = (index, write)
            elif not late:
                issue = self.issued.get(write.number, -1)
                yield value, Proof(read_at, read, index, write, issue, unwritten, fetched=fetched)
            elif replaced is not None:
                issue = self.issued.get(replaced[1].number, -1)
                yield value, Proof(read_at, read, *replaced, issue, late=True)

    def _copied(self, wrong: Wrong, *, late: bool) -> Proof | None:
        fetched = set()  # places where the right value was read in its turn, so not to blame
        seen = list(self.elements(wrong))
        for at, read, lo, data in seen if late else reversed(seen):
            place = (*self.memory(read), lo)
            if data == wrong.expected_bytes:
                fetched.add(place)
            if data != wrong.given_bytes or place in fetched:
                continue
            if wrong.poison and not self.untouched(at, read, lo, len(data)):
                continue  # a NaN that somebody wrote there: what it came from was read before
            for value, proof in self.others(at, read, lo, data, late=late):
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
            if at >= self.end:
                continue
            for index, write in self.touching(read, read.lo, read.hi):
                if index > at and read.value == given and write.value == expected:
                    issue = self.issued.get(write.number, -1)
                    return Proof(at, read, index, write, issue, wrong.poison)
        return None


def written(event: Event, lo: int, size: int) -> bytes | None:
    """Bytes lo..lo+size as a write left them; None where it left them partly, or only a digest."""
    value = event.value
    if type(value) is int:
        value = (value & 0xFFFFFFFF).to_bytes(4, "little")
    if not isinstance(value, bytes) or lo < event.lo or lo + size > event.hi:
        return None
    if len(value) != event.hi - event.lo:
        return None
    return bytes(value[lo - event.lo : lo - event.lo + size])
