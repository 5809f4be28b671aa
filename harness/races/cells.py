"""The writes to one cell, and what a wait on it (or a poll of it) acquires.

Known writes are those that the reader's clock covers: they have certainly arrived. The others may or
may not have, except those that come causally after the read. So

    counters   known amounts lower what is still needed; of the others every choice that brings the
               rest must be thinkable (joins.py). Known decrements raise it: self-clearing cells.
    sets       a known Set (or store of the owner: a reset) begins anew: what it covers is dropped.
               Of the others each one that satisfies the wait may be the one that did.

A write whose clock the reader knows already, all but its own arrival, is counted as arrived: for what
is acquired it makes no difference which of those came, and the lists stay short. Mixed cells with a
Set that alone does not satisfy are not modelled; there a wait acquires all that was delivered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter

from harness.races.joins import Clock, Lanes, guaranteed, joined, shared
from harness.races.known import NOTHING, Known, span_of


class Write:
    """One write to a cell. op: its one-sided operation, or -1 for a store by the cell's owner.

    at: the event of its issue. adds: whether `value` is added (else set; None: not in the record).
    clock: what whoever sees it knows. asked: whether its clock was used before its own turn.
    """

    __slots__ = ("adds", "asked", "at", "clock", "delivered", "issuer", "op", "value")

    def __init__(self, issuer: int, at: int, op: int, value: int | None, *, adds: bool) -> None:
        self.issuer = issuer
        self.at = at
        self.op = op
        self.value = value
        self.adds = adds
        self.clock: Clock = ((), NOTHING)
        self.delivered = at if op < 0 else -1
        self.asked = False

    def known(self, lanes: Lanes, done: Known) -> bool:
        """Whether a clock covers its arrival."""
        return done.has(self.op) if self.op >= 0 else lanes[self.issuer] >= self.at

    def satisfies(self, value: int, *, reached: bool) -> bool:
        """Whether the cell, holding just this value, ends a wait for `value`."""
        return self.value is None or (self.value >= value if reached else self.value == value)


class Reading:
    """How far one reader has come with a cell: its own settled past, which only grows."""

    __slots__ = ("absorbed", "absorbed_ops", "base", "heads", "live", "seen")

    def __init__(self, initial: int) -> None:
        self.base = initial
        self.absorbed = 0  # amounts of writes that need not have come, but tell nothing new
        self.absorbed_ops: list[int] = []
        self.heads: dict[int, int] = {}  # counters: by issuer, the first write not settled
        self.live: list[Write] = []  # sets: past writes that are not overwritten
        self.seen = 0  # sets: how many of the cell's writes were looked at


class Cell:
    """All writes to a cell of a run, in the order of their issue."""

    __slots__ = ("decreases", "delivered", "initial", "queues", "readings", "sets", "writes")

    def __init__(self) -> None:
        self.initial = 0
        self.writes: list[Write] = []
        self.queues: dict[int, list[Write]] = {}
        self.sets = False
        self.decreases = False
        self.restart()

    def restart(self) -> None:
        """Forget what the last pass knew."""
        self.readings: dict[int, Reading] = {}  # by lane
        self.delivered: Clock | None = None
        for write in self.writes:
            write.asked = False

    def add(self, write: Write) -> None:
        """The next write."""
        self.writes.append(write)
        self.queues.setdefault(write.issuer, []).append(write)
        if not write.adds:
            self.sets = True
        elif write.value is not None and write.value < 0:
            self.decreases = True

    def deliver(self, write: Write) -> None:
        """First pass: whoever reads the cell from now on has heard of `write`."""
        old = self.delivered
        self.delivered = write.clock if old is None else joined((old, write.clock))

    def acquired(
        self, reader: int, at: int, clock: Clock, value: int, *, reached: bool
    ) -> Clock | None:
        """What a read at event `at` of `reader` adds to its clock.

        The read found `value` (reached: or more). The own component of `clock` is `at`.
        """
        reading = self.readings.get(reader)
        if reading is None:
            reading = self.readings[reader] = Reading(self.initial)
        if self.sets:
            return self._last_set(reading, reader, at, clock, value, reached=reached)
        return self._counted(reading, reader, at, clock, value, reached=reached)

    def _everything(self, at: int) -> Clock | None:
        """What a read acquires when nothing better is known: all that was delivered."""
        came = [write.clock for write in self.writes if 0 <= write.delivered < at]
        return joined(came) if came else None

    # Counters -----------------------------------------------------------------------------------

    def _counted(
        self, reading: Reading, reader: int, at: int, clock: Clock, value: int, *, reached: bool
    ) -> Clock | None:
        self._settle(reading, at, clock)
        need = value - reading.base - reading.absorbed
        if self.decreases:
            need -= sum(
                write.value or 0
                for issuer, queue in self.queues.items()
                for write in queue[reading.heads.get(issuer, 0) :]
                if write.at < at and (write.value or 0) < 0 and write.known(*clock)
            )
        sign = 1
        if need <= 0:
            if need == 0 and reading.absorbed_ops and not self._others(reading, reader, at):
                return self._all_came(reading, clock)
            if reached or need == 0:
                return None
            sign, need = -1, -need
        clocks: list[Clock] = []
        amounts: list[int] = []
        for issuer in self.queues:
            total = 0
            for write in self._open(reading, issuer, reader, at):
                amount = sign * (write.value or 0)
                if amount > 0 and not (sign < 0 and write.known(*clock)):
                    clocks.append(write.clock)
                    amounts.append(amount)
                    if total >= need:
                        break  # no choice needs more of them than this one and those before it
                    total += amount
        if sum(amounts) == need and reading.absorbed_ops and sign > 0:
            return joined((*clocks, self._all_came(reading, clock)))
        found = guaranteed(clocks, amounts, need, exact=not reached) if clocks else None
        return self._everything(at) if found is None else found

    @staticmethod
    def _all_came(reading: Reading, clock: Clock) -> Clock:
        """All absorbed writes are needed, so they have come; the clock that knows it."""
        found = clock[0], clock[1].plus(span_of(reading.absorbed_ops))
        reading.base += reading.absorbed
        reading.absorbed, reading.absorbed_ops = 0, []
        return found

    def _others(self, reading: Reading, reader: int, at: int) -> bool:
        """Whether a write that is not settled may have come in place of one that is absorbed."""
        return any(
            write.value for issuer in self.queues for write in self._open(reading, issuer, reader, at)
        )

    def _settle(self, reading: Reading, at: int, clock: Clock) -> None:
        """Count what has certainly come, and what would tell the reader nothing new."""
        lanes, done = clock
        for issuer, queue in self.queues.items():
            head = start = reading.heads.get(issuer, 0)
            while head < len(queue) and queue[head].at < at:
                write = queue[head]
                amount = write.value or 0
                if done.has(write.op):
                    reading.base += amount
                elif (
                    amount > 0 and write.at <= lanes[issuer]
                    and done.covers(write.clock[1], write.op)
                    and all(a <= b for a, b in zip(write.clock[0], lanes, strict=True))
                ):
                    reading.absorbed += amount
                    reading.absorbed_ops.append(write.op)
                else:
                    break
                head += 1
            if head != start:
                reading.heads[issuer] = head

    def _open(self, reading: Reading, issuer: int, reader: int, at: int) -> Iterator[Write]:
        """One issuer's writes that are not settled and not causally after the read."""
        queue = self.queues[issuer]
        for index in range(reading.heads.get(issuer, 0), len(queue)):
            write = queue[index]
            if write.at > at:
                write.asked = True
                if write.clock[0][reader] >= at:
                    return  # and so are this issuer's later ones
            yield write

    # Sets ---------------------------------------------------------------------------------------

    def _last_set(
        self, reading: Reading, reader: int, at: int, clock: Clock, value: int, *, reached: bool
    ) -> Clock | None:
        while reading.seen < len(self.writes) and self.writes[reading.seen].at < at:
            reading.live.append(self.writes[reading.seen])
            reading.seen += 1
        top: Write | None = None
        for write in reading.live:
            if not write.adds and write.known(*clock) and (
                top is None or top.known(*write.clock) or write.delivered > top.delivered >= 0
            ):
                top = write
        base = self.initial
        if top is not None:
            reading.live = [w for w in reading.live if w is top or not w.known(*top.clock)]
            base = top.value if top.value is not None else value
        others = [write for write in reading.live if write is not top]
        base += sum(w.value or 0 for w in others if w.adds and w.known(*clock))
        if base >= value if reached else base == value:
            return None
        future = [
            write for issuer in self.queues for write in self._coming(issuer, reader, at)
        ]
        others = [write for write in others if not write.known(*clock)] + future
        options = [
            w.clock for w in others if not w.adds and w.satisfies(value, reached=reached)
        ]
        adding = [write for write in others if write.adds and (write.value or 0) > 0]
        if adding and value > base:
            counted = guaranteed(
                [write.clock for write in adding], [write.value or 0 for write in adding],
                value - base, exact=not reached,
            )
            if counted is not None:
                options.append(counted)
        return shared(options) if options else self._everything(at)

    def _coming(self, issuer: int, reader: int, at: int) -> Iterator[Write]:
        """One issuer's writes after the read that do not come causally after it."""
        queue = self.queues[issuer]
        for index in range(bisect_left(queue, at, key=attrgetter("at")), len(queue)):
            write = queue[index]
            write.asked = True
            if write.clock[0][reader] >= at:
                return
            yield write
