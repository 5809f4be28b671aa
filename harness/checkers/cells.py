"""The history of every cell of a run: who wrote it, how, and which waits looked at it.

A cell is (window, rank, byte offset). Known are those that a notify reached or a wait named.
Stores and puts over a cell count as writes where the record kept their bytes (up to 256).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.record import CHANGES, Event, Run, Site

Key = tuple[int, int, int]
_HOW = {"store": "store", "store_issue": "store"}


@dataclass(frozen=True, slots=True)
class Write:
    """One write to a cell. rank: who issued it. how: add, set, store, put, or line: a write to another
    cell that wrote the 64-byte line of both back."""

    index: int
    rank: int
    how: str
    before: int
    after: int
    event: Event
    site: Site

    @property
    def notifies(self) -> bool:
        """Whether a notify or the signal of a put_signal made it."""
        return self.how in ("add", "set")


@dataclass(slots=True)
class Cell:
    """One cell. waits: (event index, site) of the waits on it that completed."""

    key: Key
    writes: list[Write] = field(default_factory=list)
    waits: list[tuple[int, Site]] = field(default_factory=list)

    def counts(self) -> Counter[int]:
        """How often each rank notified it; to take back or to reset is no contribution."""
        return Counter(
            write.rank for write in self.writes
            if write.notifies and not (write.how == "add" and write.after < write.before)
            and not (write.how == "set" and write.after == 0)
        )

    def taken(self) -> Counter[int]:
        """How much each rank took back."""
        taken: Counter[int] = Counter()
        for write in self.writes:
            if write.how == "add" and write.after < write.before:
                taken[write.rank] += write.before - write.after
        return taken

    def value(self) -> int:
        """What the last write left there; cells start at zero."""
        return self.writes[-1].after if self.writes else 0


class Cells:
    """All cells of one run."""

    def __init__(self, run: Run, named: Iterable[Key]) -> None:
        self.run = run
        self.cells: dict[Key, Cell] = {key: Cell(key) for key in named}
        for event in run.events:
            if event.kind == "wait" or (event.kind == "deliver" and type(event.value) is int):
                key = (event.window, event.peer, event.lo)
                if key not in self.cells:
                    self.cells[key] = Cell(key)
        self._by_memory: dict[tuple[int, int], list[Cell]] = {}
        for key, cell in self.cells.items():
            self._by_memory.setdefault(key[:2], []).append(cell)
        for index, event in enumerate(run.events):
            self._note(index, event)

    def __getitem__(self, key: Key) -> Cell:
        return self.cells[key]

    def in_window(self, window: int) -> list[Cell]:
        """The window's cells on all ranks, in order of rank and offset."""
        return [self.cells[key] for key in sorted(self.cells) if key[0] == window]

    def _note(self, index: int, event: Event) -> None:
        run = self.run
        if event.kind == "wait":
            cell = self.cells[event.window, event.peer, event.lo]
            cell.waits.append((index, run.site(event)))
        elif event.kind == "deliver" and type(event.value) is int:
            cell = self.cells[event.window, event.peer, event.lo]
            issue = run.issue_of(event)
            how = "set" if _sets(issue, cell.value(), event.value) else "add"
            self._add(cell, index, event, how, event.value)
        elif event.kind in CHANGES and isinstance(event.value, bytes):
            if len(event.value) != event.hi - event.lo:
                return
            how = _HOW.get(run.issue_of(event).kind, "put")
            if event.kind == "write_back":
                how = "line"
            for cell in self._by_memory.get((event.window, event.peer), ()):
                offset = cell.key[2] - event.lo
                if 0 <= offset <= len(event.value) - 4:
                    data = event.value[offset : offset + 4]
                    self._add(cell, index, event, how, int.from_bytes(data, "little", signed=True))

    def _add(self, cell: Cell, index: int, event: Event, how: str, after: int) -> None:
        run = self.run
        cell.writes.append(
            Write(index, run.rank_of(event), how, cell.value(), after, event, run.site(event))
        )


def _sets(issue: Event, before: int, after: int) -> bool:
    """Whether a signal replaced the value; put_signal's issue does not say, its result does."""
    if isinstance(issue.value, tuple):
        return True
    return issue.kind == "signal" and (before + int(issue.value) - after) % (1 << 32) != 0
