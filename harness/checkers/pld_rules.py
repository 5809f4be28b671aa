"""The rules of PyPTO that a pld program breaks (frontends/pypto/rules.py names them).

What a call or a dispatch raised comes first; then how cells are used in the finished run, whether or not
this schedule shows the harm:

set_on_shared_cell: a rank's Set replaced what another rank had left there, before any wait (or read) of
    the owner had seen it, or could have: its lane had waited for nothing since.
eq_can_overshoot: after an == wait had seen its value, an add took the cell on that could have come
    before, as its lane had waited for nothing since.
macro_as_environment: the program sets what only the build of the runtime could set.
tag_of_zero: a lane is blocked in a >= wait for 1 or more, and all that came to its cell were zeros.

Not modelled: orders that come from polling something else than a cell.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from harness.checkers.failures import first_failure
from harness.checkers.wording import actor, elements, finding
from harness.finding import Finding
from harness.record import Event, Run

# Events after which a lane knows what others did.
ACQUIRES = frozenset(("wait", "sync", "barrier", "window", "join"))
READS = frozenset(("load", "remote_load"))

Key = tuple[int, int, int]


class PldRules:
    """The checker of pld scenarios. Kinds: a rule that a failure breaks, or those above, each once.

    macros: where the program sets a compile-time macro in the environment, as (`file:line`, macro).
    """

    name = "pld"

    def __init__(self, macros: Sequence[tuple[str, str]] = ()) -> None:
        self._macros = macros

    def check(self, run: Run) -> Iterable[Finding]:
        """The rule that the first failure breaks; of a run without failures, what cells show."""
        if run.failures:
            yield from first_failure(run, self.name)
            return
        cells = _Cells(run)
        for found in (cells.overwritten(), cells.overshooting(), cells.zeros()):
            yield from itertools.islice(found, 1)
        for where, macro in self._macros[:1]:
            yield finding(
                self.name, "macro_as_environment", -1,
                f"{where} sets {macro} in the environment, where nobody reads it",
            )


class _Cells:
    """Notifies and waits of a run by cell, and when each lane last learnt anything."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notifies: dict[Key, list[int]] = defaultdict(list)
        self.waits: dict[Key, list[int]] = defaultdict(list)
        self._acquired: dict[int, list[int]] = defaultdict(list)
        cells = {raw[2] for raw in run.raw if raw[1] == "notify"}
        for index, raw in enumerate(run.raw):
            owner, kind, window, peer, lo, hi = raw[:6]
            if kind == "notify":
                self.notifies[window, peer, lo].append(index)
            elif kind in ACQUIRES:
                self._acquired[owner].append(index)
                if kind == "wait":
                    self.waits[window, peer, lo].append(index)
            elif kind in READS and window in cells:
                self._acquired[owner].append(index)
                for cell in range(lo - lo % 4, hi, 4):
                    if (window, peer, cell) in self.notifies:
                        self.waits[window, peer, cell].append(index)

    def overwritten(self) -> Iterator[Finding]:
        """Sets by different ranks, neither the owner, that nothing keeps apart."""
        for key, indexes in self.notifies.items():
            previous: int | None = None
            for index in indexes:
                event = self._event(index)
                if self.run.rank_of(event) == key[1]:
                    previous = None
                    continue
                if previous is not None and self._clobbers(key, previous, index):
                    yield self._overwritten(key, previous, index)
                previous = index

    def _clobbers(self, key: Key, previous: int, index: int) -> bool:
        before, after = self._event(previous), self._event(index)
        if self.run.rank_of(before) == self.run.rank_of(after):
            return False
        seen = _first_after(self.waits[key], previous)
        return type(after.value) is tuple and (
            seen is None or not self._learnt(after.owner, seen, index)
        )

    def _overwritten(self, key: Key, previous: int, index: int) -> Finding:
        run = self.run
        before, after = self._event(previous), self._event(index)
        return finding(
            "pld", "set_on_shared_cell", run.rank_of(after),
            f"{actor(run, after)} can overwrite what {actor(run, before)} left in "
            f"{self._named(key)} before rank {key[1]} has seen it",
            sites=(run.site(before), run.site(after)), events=(previous, index),
        )

    def overshooting(self) -> Iterator[Finding]:
        """Adds that could have come before an == wait had looked."""
        run = self.run
        for key, waits in self.waits.items():
            for wait in waits:
                value, reached = run.awaited.get(wait, (0, True))
                if reached:
                    continue
                for index in self.notifies[key]:
                    event = self._event(index)
                    early = run.rank_of(event) != key[1] and not self._learnt(event.owner, wait, index)
                    if index > wait and early and type(event.value) is int and event.value > 0:
                        yield finding(
                            "pld", "eq_can_overshoot", key[1],
                            f"{actor(run, self._event(wait))} looks for == {value} in "
                            f"{self._named(key)}, and {actor(run, event)} can take it past that before",
                            sites=(run.site(self._event(wait)), run.site(event)), events=(wait, index),
                        )

    def zeros(self) -> Iterator[Finding]:
        """Blocked waits for 1 or more at cells that only got zeros."""
        run = self.run
        for blocked in run.blocked:
            if blocked.kind != "wait" or blocked.compare != ">=" or blocked.expected < 1:
                continue
            key = (blocked.window, blocked.rank, blocked.lo)
            events = [self._event(index) for index in self.notifies[key]]
            foreign = [event for event in events if run.rank_of(event) != key[1]]
            if foreign and all(event.value in (0, ("set", 0)) for event in events):
                yield finding(
                    "pld", "tag_of_zero", run.rank_of(foreign[0]),
                    f"{run.lane_name(blocked.lane)} waits for >= {blocked.expected} in "
                    f"{self._named(key)}, and {actor(run, foreign[0])} brings 0",
                    sites=(run.site(foreign[0]),), events=(self.notifies[key][0],),
                )

    def _learnt(self, lane: int, since: int, until: int) -> bool:
        """Whether the lane waited for anything in between."""
        learnt = _first_after(self._acquired[lane], since)
        return learnt is not None and learnt < until

    def _named(self, key: Key) -> str:
        return elements(self.run, key[0], key[2], key[2] + 4)

    def _event(self, index: int) -> Event:
        return Event._make(self.run.raw[index])


def _first_after(indexes: list[int], index: int) -> int | None:
    """The first of ascending `indexes` behind `index`."""
    at = bisect_right(indexes, index)
    return indexes[at] if at < len(indexes) else None
