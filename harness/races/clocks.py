"""Clocks of a finished run: what each lane and each operation in flight knows, in every schedule.

Model. The clock of a lane says of every lane up to which event it is known, and holds the one-sided
operations (each a fiber of its own) that are known to be complete:

    issue      an operation knows what its lane knew, and what the program orders before it (steps.py);
               whoever sees a notify knows what the notify knows
    quiet, get the lane knows its operations (the get) complete
    sync       the lanes that meet know what each knew at its arrival: no operation of a lane that was
               not quiet before. barrier is quiet and sync, window allocation a sync of all
    wait, poll the lane knows what every set of notifies that can have ended it guarantees (cells.py)

What a wait guarantees depends on which notifies can only come after it, hence on the clocks. The first
pass lets each wait know all that was delivered before it in this run, which is too much. Each further
pass starts from the clocks of the one before and only takes away; it ends when no clock that was used
ahead of its turn has changed. What is left holds on every schedule that takes the same branches.

Not modelled: that another lane of a rank might have made its k-th sync; the lanes that met in this run
are taken to meet always.
"""

from __future__ import annotations

from collections import defaultdict

from harness.races.cells import Cell, Write
from harness.races.joins import Clock, Lanes, joined
from harness.races.known import NOTHING, Span, cut, joined_spans
from harness.races.steps import Send, Steps

PASSES_MAX = 12


class Clocks:
    """The lanes' clocks of a run. changes: by event, the clock of its lane from then on."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.size = len(steps.run.lanes)
        self.passes = 1
        self._ops: dict[int, Clock] = {}  # of those that write to cells
        self.changes = self.plain = self._pass(first=True)
        if any(step.kind == "read" for step in steps.steps):
            again = True
            while again and self.passes < PASSES_MAX:
                for cell in steps.cells.values():
                    cell.restart()
                self._again = False
                self.changes = self._pass(first=False)
                again = self._again
                self.passes += 1

    def at(self, lane: int, event: int, *, roughly: bool = False) -> Clock:
        """What a lane knows at an event of its own. roughly: by the first pass."""
        changes = self.plain if roughly else self.changes
        raw = self.steps.run.raw
        last = max((at for at in changes if at <= event and raw[at][0] == lane), default=None)
        return ((-1,) * self.size, NOTHING) if last is None else changes[last]

    def _pass(self, *, first: bool) -> dict[int, Clock]:
        clocks: list[Clock] = [((-1,) * self.size, NOTHING)] * self.size
        writes = self.steps.writes
        behind: dict[int, Behind] = defaultdict(Behind)
        changes: dict[int, Clock] = {}
        arrived: dict[object, list[Clock]] = {}
        met: dict[object, Clock] = {}
        unheard: dict[int, list[tuple[Write, Cell]]] = {}
        for kind, at, lane, what in self.steps.steps:
            if kind == "send":
                before = behind[what.pair].next(what, clocks[lane][1].base)
                if what.number in writes:
                    self._ops[what.number] = sent(at, lane, clocks[lane], what, before)
            elif kind == "issue":
                self._issue(at, lane, clocks[lane], what[0], first=first)
                if first:
                    write, cell = what
                    if write.op < 0:
                        cell.deliver(write)
                    else:
                        unheard.setdefault(write.op, []).append(what)
            elif kind == "done":
                lanes, done = clocks[lane]
                more = done.plus(what)
                if more is not done:
                    clocks[lane] = changes[at] = lanes, more
            elif kind == "read":
                cell, value, reached = what
                if first:
                    found = cell.delivered
                else:
                    lanes, done = clocks[lane]
                    now = known_at(lanes, lane, at), done
                    found = cell.acquired(lane, at, now, value, reached=reached)
                if found is not None:
                    clocks[lane] = changes[at] = joined((clocks[lane], found))
            elif kind == "deliver":
                for write, cell in unheard.pop(what, ()):
                    cell.deliver(write)
            elif kind == "arrive":
                lanes, done = clocks[lane]
                arrived.setdefault(what, []).append((known_at(lanes, lane, at), done))
            else:
                if what not in met:
                    met[what] = joined(arrived[what])
                clocks[lane] = changes[at] = joined((clocks[lane], met[what]))
        return changes

    def _issue(self, at: int, lane: int, clock: Clock, write: Write, *, first: bool) -> None:
        """What whoever sees this write to a cell knows."""
        new = self._ops[write.op] if write.op >= 0 else (known_at(clock[0], lane, at), clock[1])
        if not first and write.asked and write.clock != new:
            self._again = True
        write.clock = new


class Behind:
    """One lane's puts and notifies to one target: those before its last fence, and those since. What
    the lane knows anyway is forgotten."""

    __slots__ = ("_before", "_fences", "_since")

    def __init__(self) -> None:
        self._fences = 0
        self._before: Span = (0, 0)
        self._since: Span = (0, 0)

    def next(self, send: Send, base: int) -> Span:
        """Note an operation; returns those that are delivered before it. base: of what its lane knows."""
        if self._fences != send.fences:
            self._fences = send.fences
            self._before = joined_spans(self._before, self._since)
            self._since = (0, 0)
        if self._before[1]:
            self._before = cut(self._before, base)
        offset, bits = cut(self._since, base) if self._since[1] else (send.number, 0)
        self._since = offset, bits | 1 << (send.number - offset)
        return self._before


def sent(at: int, lane: int, clock: Clock, send: Send, before: Span) -> Clock:
    """What whoever sees an operation complete knows: what its lane knew, and what the program orders
    before it."""
    lanes, done = clock
    number = send.number
    done = done.plus((number - 1, 3) if send.signal else (number, 1))
    if before[1]:
        done = done.plus(before)
    return known_at(lanes, lane, at), done


def known_at(lanes: Lanes, lane: int, at: int) -> Lanes:
    """`lanes` with its own lane's component set to event `at`."""
    return (*lanes[:lane], at, *lanes[lane + 1 :])
