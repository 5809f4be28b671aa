"""The record of a run, read once: the steps that change clocks, and what is the same in every pass.

What an operation knows by the program alone, without any clock: that it is itself complete, the data
of its put_signal, and, behind a fence, all that its lane put to the same target before (`sends`).

Cells are elements that a notify or wait names. So are single int32 elements of windows that are read
alone and written remotely only alone: flags. A read of one cell alone is a poll: it acquires what its
value tells, and races with nothing. A longer load of int32 elements is read as polls of the cells in
it, and races with puts and stores, not with notifies.

Lanes of a rank are clocks of their own: a fence, quiet or sync is its lane's only.

Not modelled: a data element of int32 that is read and written alone, which counts as a flag, as a
correct program may poll one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from typing import Any, NamedTuple

from harness.races.cells import Cell, Write
from harness.races.known import span_of
from harness.record import RawEvent, Run

CELL_BYTES = 4
# A store that reaches memory later is delivered as a put to its own lane's rank is.
PUTS = frozenset(("put", "put_nbi", "remote_store", "put_signal", "store_issue"))
READS = frozenset(("load", "remote_load"))
GETS = frozenset(("get_issue", "get_nbi"))
ARRIVALS = frozenset(("sync_arrive", "window_arrive", "join_arrive"))
MEETINGS = frozenset(("sync", "barrier", "window", "join"))
FLAG_DTYPE = "int32"
FLAG_WINDOWS = frozenset((FLAG_DTYPE, "uint8"))  # a window of bytes may be viewed as cells

Key = tuple[int, int, int]  # window, rank, byte offset


class Step(NamedTuple):
    """One step of a pass: what, at which event, of which lane, with what."""

    kind: str  # send, issue, done, arrive, meet, read, deliver
    at: int
    lane: int
    what: Any


class Send(NamedTuple):
    """What the program orders before an operation. pair: its issuer and target (-1: a get, ordered by
    nothing). fences: of its issuer so far. signal: it follows the operation before it, its data."""

    number: int
    pair: int
    fences: int
    signal: bool


class Steps:
    """The steps of a run, its cells, and its operations by number.

    begun, issuers: by operation, the event of its issue and its lane. writes: what it does to a cell.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps: list[Step] = []
        self.cells: dict[Key, Cell] = {}
        self.sends: list[Send] = []
        self.issuers: list[int] = []
        self.begun: list[int] = []  # by operation: the event of its issue
        self.polls: set[int] = set()  # events that read one cell alone
        self.late: set[int] = set()  # operations that read their source in flight
        self.writes: dict[int, Write] = {}  # to cells, by operation
        count = len(run.lanes)
        self._own: list[list[int]] = [[] for _ in range(count)]  # issued since the last quiet
        self._stored: list[list[int]] = [[] for _ in range(count)]  # stores since the last publish
        self.stores: set[int] = set()  # stores that reach memory later
        self._fences = [0] * count
        self._met: dict[object, int] = defaultdict(int)  # rendezvous so far, by rank and group
        self._meeting: list[object] = [None] * count  # by lane: the one it arrived at last
        self._getting: list[dict[int, list[Step]]] = [{} for _ in range(count)]
        self._find_cells()
        self._by_memory: dict[tuple[int, int], list[tuple[int, Cell]]] = defaultdict(list)
        for (window, rank, lo), cell in sorted(self.cells.items(), key=lambda item: item[0]):
            self._by_memory[window, rank].append((lo, cell))
        for index, event in enumerate(run.raw):
            self._read_event(index, event)
        for cell in self.cells.values():
            cell.restart()

    # Cells ----------------------------------------------------------------------------------------

    def _find_cells(self) -> None:
        flags: set[Key] = set()
        wide: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        sets: list[Key] = []
        for _, kind, window, peer, lo, hi, *_ in self.run.raw:
            if kind in ("notify", "signal", "wait"):
                sets.append((window, peer, lo))
            elif hi - lo == CELL_BYTES:
                if kind in READS or kind in GETS:
                    flags.add((window, peer, lo))
            elif kind in PUTS:
                wide[window, peer].add((lo, hi))
        names = self.run.names if flags else []
        for key in flags:
            known = names[key[0]]
            if known.kind == "window" and known.dtype in FLAG_WINDOWS and not any(
                lo < key[2] + CELL_BYTES and key[2] < hi for lo, hi in wide.get(key[:2], ())
            ):
                sets.append(key)
        for key in sets:
            if key not in self.cells:
                self.cells[key] = Cell()
        if self.cells:
            self._find_initial()

    def _find_initial(self) -> None:
        """What each cell held at first, where the record tells; else 0."""
        left = set(self.cells)
        amounts: dict[int, Any] = {}
        for _, kind, window, peer, lo, _, value, number, *_ in self.run.raw:
            if kind in ("notify", "signal"):
                amounts[number] = value
            elif kind in ("deliver", "deliver_part", "store", "wait") and (window, peer, lo) in left:
                left.discard((window, peer, lo))
                if kind == "wait":
                    self.cells[window, peer, lo].initial = value
                elif type(value) is int and type(amounts.get(number)) is int:
                    self.cells[window, peer, lo].initial = value - amounts[number]
                if not left:
                    return

    def _within(self, event: RawEvent) -> list[tuple[int, Cell]]:
        """The cells in the bytes of an event, with their offsets."""
        known = self._by_memory.get((event[2], event[3]))
        if not known:
            return []
        first = bisect_left(known, event[4], key=lambda entry: entry[0])
        found = []
        for lo, cell in known[first:]:
            if lo + CELL_BYTES > event[5]:
                break
            found.append((lo, cell))
        return found

    # Events ---------------------------------------------------------------------------------------

    def _read_event(self, index: int, event: RawEvent) -> None:
        lane, kind, number = event[0], event[1], event[7]
        if kind in PUTS or kind in ("notify", "signal"):
            self._issue(index, event)
        elif kind in GETS:
            self._sent(index, lane, Send(number, -1, 0, signal=False), ordered=False)
            self._getting[lane][number] = []
        elif kind == "deliver":
            write = self.writes.get(number)
            if write is not None:
                write.delivered = index
                self.steps.append(Step("deliver", index, lane, number))
        elif kind == "read":
            self._landing(index, event)
        elif kind in READS:
            self._load(index, event)
        elif kind == "store":
            for lo, cell in self._within(event):
                write = Write(lane, index, -1, _int_at(event, lo), adds=False)
                cell.add(write)
                self.steps.append(Step("issue", index, lane, (write, cell)))
        elif kind == "wait":
            value, reached = self.run.awaited.get(index, (event[6], True))
            what = (self.cells[event[2], event[3], event[4]], value, reached)
            self.steps.append(Step("read", index, lane, what))
        elif kind == "fence":
            self._fences[lane] += 1
        elif kind in ("quiet", "get"):
            self._completed(index, lane, kind)
        elif kind == "publish":
            self.steps.append(Step("done", index, lane, span_of(self._stored[lane])))
            self._stored[lane].clear()
        elif kind in ARRIVALS or kind in MEETINGS:
            self._meet(index, event)

    def _issue(self, index: int, event: RawEvent) -> None:
        lane, kind, window, peer, lo, _, value, number = event[:8]
        pair = lane * self.run.ranks + peer
        send = Send(number, pair, self._fences[lane], kind == "signal")
        self._sent(index, lane, send, ordered=True)
        adds = not isinstance(value, tuple) or value[0] == "add"
        if kind in PUTS:
            if kind == "put_nbi":
                self.late.add(number)
            elif kind == "store_issue":
                self.stores.add(number)
                self._stored[lane].append(number)
            for at, cell in self._within(event):
                write = Write(lane, index, number, _int_at(event, at),
                              adds=adds and isinstance(value, tuple))
                self._cell_write(index, write, cell)
        else:
            amount = value if adds else value[1]
            cell = self.cells[window, peer, lo]
            self._cell_write(index, Write(lane, index, number, amount, adds=adds), cell)

    def _sent(self, index: int, lane: int, send: Send, *, ordered: bool) -> None:
        self.sends.append(send)
        self.issuers.append(lane)
        self.begun.append(index)
        self._own[lane].append(send.number)
        if ordered:
            self.steps.append(Step("send", index, lane, send))

    def _cell_write(self, index: int, write: Write, cell: Cell) -> None:
        cell.add(write)
        self.writes[write.op] = write
        self.steps.append(Step("issue", index, write.issuer, (write, cell)))

    def _load(self, index: int, event: RawEvent) -> None:
        lane, _, window, _, lo, hi = event[:6]
        found = self._within(event)
        if hi - lo == CELL_BYTES and found:
            self.polls.add(index)
        elif found and self.run.names[window].dtype not in FLAG_WINDOWS:
            return
        for at, cell in found:
            value = _int_at(event, at)
            if value is not None:
                self.steps.append(Step("read", index, lane, (cell, value, False)))

    def _landing(self, index: int, event: RawEvent) -> None:
        """A get of cells: a poll of each that acquires when the get is complete."""
        number = event[7]
        found = self._within(event)
        if not found:
            return
        if event[5] - event[4] == CELL_BYTES:
            self.polls.add(index)
        elif self.run.names[event[2]].dtype not in FLAG_WINDOWS:
            return
        lane = self.issuers[number]
        self._getting[lane][number] = [
            Step("read", -1, lane, (cell, value, False))
            for at, cell in found if (value := _int_at(event, at)) is not None
        ]

    def _completed(self, index: int, lane: int, kind: str) -> None:
        """A quiet completes all of its lane's operations, a get its own."""
        getting = self._getting[lane]
        if kind == "quiet":
            done, polled = span_of(self._own[lane]), list(getting.values())
            self._own[lane].clear()
            self._stored[lane].clear()
            getting.clear()
        else:
            number = max(getting)
            done, polled = (number, 1), [getting.pop(number)]
        self.steps.append(Step("done", index, lane, done))
        for steps in polled:
            self.steps += [step._replace(at=index) for step in steps]

    def _meet(self, index: int, event: RawEvent) -> None:
        lane, kind, window, rank = event[:4]
        if kind not in ARRIVALS:
            self.steps.append(Step("meet", index, lane, self._meeting[lane]))
            return
        key: object = window
        if kind == "sync_arrive":
            group = event[6] or ()
            self._met[rank, group] += 1
            key = ("sync", group, self._met[rank, group])
        elif kind == "join_arrive":
            self._met[lane] += 1
            key = ("join", rank, self._met[lane])
        self._meeting[lane] = key
        self.steps.append(Step("arrive", index, lane, key))


def _int_at(event: RawEvent, lo: int) -> int | None:
    """The int32 that an event wrote or read at byte `lo`; None where the record has a digest."""
    value = event[6][1] if isinstance(event[6], tuple) else event[6]
    if not isinstance(value, bytes) or len(value) != event[5] - event[4]:
        return None
    return int(struct.unpack_from("<i", value, lo - event[4])[0])
