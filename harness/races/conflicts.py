"""The pairs of accesses of a run that touch the same bytes and that nothing orders.

An access is ordered before another if the other's clock covers it: that of its lane for what acts at
once, its own for what is done in flight (a delivery, both ends of a get, the source of a put_nbi).
One run suffices for any pair that it executes, in whichever order it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from harness.races.clocks import Behind, Clocks, sent
from harness.races.joins import Clock
from harness.races.known import NONE, NOTHING
from harness.races.shadow import Access, Memory
from harness.races.steps import FLAG_DTYPE, FLAG_WINDOWS, GETS, PUTS, Steps
from harness.record import DELIVERIES, FETCHED, WRITTEN, RawEvent, Run

SHARED = -1  # the rank of memory that all ranks have in common
_ONE = {"load": "read", "remote_load": "read", "store": "write"}
_LAST = frozenset(("deliver", "land"))  # events that end an operation
_ISSUES = PUTS | GETS | {"notify", "signal"}


class Conflict(NamedTuple):
    """Two accesses that nothing orders, as the record has them."""

    first: Access
    second: Access


class Conflicts:
    """The conflicts of a run, in the order of the record."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps = Steps(run)
        self.clocks = Clocks(self.steps)
        self._atomic: dict[int, tuple[str, str]] = {}  # by operation: kind and dtype
        self._memories: dict[tuple[int, int], Memory] = defaultdict(Memory)
        self._dtypes = [known.dtype for known in run.names]
        self._shared = {
            known.number for known in run.names
            if known.kind == "host tensor" and known.name not in run.private
        }

    def __iter__(self) -> Iterator[Conflict]:
        blank: Clock = ((-1,) * len(self.run.lanes), NOTHING)
        now = [blank] * len(self.run.lanes)
        changes, polls = self.clocks.changes, self.steps.polls
        flying: dict[int, Clock] = {}  # by operation
        behind: dict[int, Behind] = defaultdict(Behind)
        for at, event in enumerate(self.run.raw):
            lane, kind = event[0], event[1]
            if kind in DELIVERIES:
                number = event[7]
                clock = flying.pop(number) if kind in _LAST else flying[number]
                for access in self._in_flight(at, event):
                    yield from self._touch(access, clock)
                continue
            if at in changes:
                now[lane] = changes[at]
            if kind in _ONE:
                if at not in polls:
                    access = Access(at, lane, -1, _ONE[kind], event[2], event[3], event[4], event[5])
                    yield from self._touch(access, now[lane])
            elif kind in _ISSUES:
                send = self.steps.sends[event[7]]
                before = NONE if send.pair < 0 else behind[send.pair].next(send, now[lane][1].base)
                flying[event[7]] = sent(at, lane, now[lane], send, before)
                self._note_kind(event)
                if kind != "put_nbi" and event[7] in self.run.sources:
                    access = self._source(at, lane, event[7], event[5] - event[4])
                    yield from self._touch(access._replace(op=-1), now[lane])

    def _note_kind(self, event: RawEvent) -> None:
        """What kind of write an operation is."""
        number, value = event[7], event[6]
        if event[1] in ("notify", "signal"):
            self._atomic[number] = ("set" if type(value) is tuple else "add", FLAG_DTYPE)
        elif type(value) is tuple:
            dtype = self._dtypes[event[2]]
            self._atomic[number] = ("add", FLAG_DTYPE if dtype == "uint8" else dtype)

    def _source(self, at: int, lane: int, number: int, nbytes: int) -> Access:
        """The read of a put's source."""
        window, lo = self.run.sources[number]
        return Access(at, lane, number, "read", window, self.run.lanes[lane][0], lo, lo + nbytes)

    def _in_flight(self, at: int, event: RawEvent) -> Iterator[Access]:
        """What one event of an operation in flight touches."""
        _, kind, window, rank, lo, hi, _, number, *_ = event
        lane = self.steps.issuers[number]
        if kind in FETCHED:
            if at not in self.steps.polls:
                yield Access(at, lane, number, "read", window, rank, lo, hi)
            return
        atomic, dtype = self._atomic.get(number, ("write", ""))
        if kind in WRITTEN and number in self.steps.late:
            source = self._source(at, lane, number, hi - lo)
            first = lo - self.run.raw[self.steps.begun[number]][4]  # of a piece
            yield source._replace(lo=source.lo + first, hi=source.hi + first)
        yield Access(at, lane, number, atomic, window, rank, lo, hi, dtype)

    def _touch(self, access: Access, clock: Clock) -> Iterator[Conflict]:
        lane = access.lane if access.op < 0 else -1
        number = access.op
        lanes, done = clock
        stores = self.steps.stores

        def covered(other: Access) -> bool:
            if stores and other.lane == access.lane and (
                (other.op in stores and (access.op < 0 or number in stores))
                or (number in stores and other.op < 0)
            ):
                return True  # a lane sees its own stores in order, whenever memory has them
            if other.op < 0:
                return other.lane == lane or lanes[other.lane] >= other.at
            return other.op == number or done.has(other.op)

        rank = SHARED if access.window in self._shared else access.rank
        memory = self._memories[access.window, rank]
        for other in memory.touch(access, covered):
            if self._polls(access, other) or self._polls(other, access):
                continue
            yield Conflict(other, access)

    def _polls(self, read: Access, other: Access) -> bool:
        """Whether a read polls the cells that a notify beside it (not an atomic put) changes."""
        return (
            read.kind == "read" and other.kind in ("add", "set")
            and self._dtypes[other.window] in FLAG_WINDOWS
            and self.run.raw[self.steps.begun[other.op]][1] not in PUTS
        )
