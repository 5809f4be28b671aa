"""Accesses to the same bytes that nothing orders, found on any schedule that executes both.

unordered_write: two writes. unordered_read: a read and a write. source_reused: the origin of a
put_nbi written, or the destination of a get_nbi touched, by the rank itself before quiet.
possible_erasure: a reset of a cell (its owner's store, or a Set) and a notify, or a Set and an
AtomicAdd: one order loses the notify. What orders accesses is in harness/races.

At most three findings a run, one a pair of sites, the earliest in the record first. Not modelled: see
harness/races/steps.py (flags) and shadow.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.checkers.wording import actor, elements, finding
from harness.finding import Finding
from harness.races.conflicts import Conflict, Conflicts
from harness.races.shadow import Access
from harness.races.steps import PUTS
from harness.record import DELIVERIES, WRITTEN, Event, Run, Site

FINDINGS_MAX = 3
_ATOMIC = frozenset(("add", "set"))
_NBI = frozenset(("put_nbi", "get_nbi"))
_ORDERED_BY_FENCE = PUTS | {"notify", "signal"}


class Races:
    """Kinds: unordered_write, unordered_read, source_reused, possible_erasure."""

    name = "races"

    def check(self, run: Run) -> Iterable[Finding]:
        """One finding a pair of sites; none of a program without windows."""
        if run.torch_calls:
            return ()
        found: dict[tuple[str, frozenset[Site]], Finding] = {}
        conflicts = Conflicts(run)
        for conflict in conflicts:
            pair = conflict.first, conflict.second
            sites = frozenset(run.site(run.events[access.at]) for access in pair)
            key = (_kind(run, conflict), sites)
            if key not in found:
                found[key] = _Pair(run, conflicts, conflict).finding(key[0])
                if len(found) == FINDINGS_MAX:
                    break
        return list(found.values())


def _kind(run: Run, conflict: Conflict) -> str:
    first, second = conflict.first, conflict.second
    kinds = {first.kind, second.kind}
    for one, other in ((first, second), (second, first)):
        if one.kind in _ATOMIC and (
            (other.kind in _ATOMIC) or (other.kind == "write" and other.op < 0)
        ):
            return "possible_erasure"
    same_rank = run.lanes[first.lane][0] == run.lanes[second.lane][0]
    if same_rank and any(_local_end(run, access) for access in (first, second)):
        return "source_reused"
    return "unordered_read" if "read" in kinds else "unordered_write"


def _local_end(run: Run, access: Access) -> bool:
    """Whether it is what a put_nbi reads or a get_nbi fills on its own rank."""
    event = run.events[access.at]
    if access.op < 0 or run.issue_of(event).kind not in _NBI:
        return False
    return event.kind == "land" or (event.kind in WRITTEN and access.kind == "read")


class _Pair:
    """Two unordered accesses, told as one that should come before the other."""

    def __init__(self, run: Run, conflicts: Conflicts, conflict: Conflict) -> None:
        self.run = run
        self.conflicts = conflicts
        first, second = conflict.first, conflict.second
        # An operation in flight while the other access was made was meant to come before it.
        flying = second.op >= 0 and self._begun(second) < first.at and first.op < 0
        self.before, self.after = (second, first) if flying else (first, second)

    def _begun(self, access: Access) -> int:
        """The event at which its lane made or issued it."""
        return access.at if access.op < 0 else self.conflicts.steps.begun[access.op]

    def _event(self, access: Access) -> Event:
        return self.run.events[access.at]

    def _who(self, access: Access) -> str:
        return actor(self.run, self.run.issue_of(self._event(access)))

    def _name(self, access: Access) -> str:
        return self.run.lane_name(access.lane)

    def _memory(self) -> str:
        lo, hi = max(self.before.lo, self.after.lo), min(self.before.hi, self.after.hi)
        name = elements(self.run, self.after.window, lo, hi)
        known = self.run.names[self.after.window]
        return name if known.kind != "window" else f"{name} of rank {self.after.rank}"

    def finding(self, kind: str) -> Finding:
        """The finding of this pair."""
        before, after = self.before, self.after
        events = {self._begun(before), before.at, self._begun(after), after.at}
        return finding(
            "races", kind, self.run.lanes[after.lane][0],
            f"{self._who(after)} {_does(after)} {self._memory()}, {self._who(before)} "
            f"{_does(before)} it, and nothing orders the two",
            sites=(self.run.site(self._event(before)), self.run.site(self._event(after))),
            evidence=(
                self._line(before), self._line(after), self._common(),
                f"missing edge: {self._edge()}",
            ),
            events=events, because="task_edge" if self._of_tasks() else "",
        )

    def _of_tasks(self) -> bool:
        """Whether both are tasks of one device (pld)."""
        owners = {self.before.lane, self.after.lane}
        ranks = {self.run.lanes[lane][0] for lane in owners}
        return len(ranks) == 1 and owners <= {raw[0] for raw in self.run.raw if raw[1] == "task"}

    def _line(self, access: Access) -> str:
        event = self._event(access)
        memory = elements(self.run, access.window, access.lo, access.hi)
        when = f"at event {access.at}"
        if event.kind in DELIVERIES:
            when = f"in flight from event {self._begun(access)}, {when}"
        rank, worker = self.run.lanes[access.lane]
        owner = f" of rank {access.rank}" if access.op >= 0 or access.rank != rank else ""
        return f"{self._who(access)} (lane {worker}) {_does(access)} {memory}{owner}, {when}"

    def _common(self) -> str:
        """How far the later one's rank has heard of the other."""
        before, after = self.before, self.after
        if before.lane == after.lane:
            return f"both are {self._name(after)}'s own; what it issues is complete only after quiet"
        heard = self._heard()
        if heard < 0:
            return (
                f"last common synchronisation: none; {self._name(after)} has heard nothing of "
                f"{self._name(before)}"
            )
        return (
            f"last common synchronisation: {self._name(after)} has heard of {self._name(before)} up to "
            f"{actor(self.run, self.run.events[heard])}, event {heard}"
        )

    def _heard(self) -> int:
        lanes, _ = self.conflicts.clocks.at(self.after.lane, self._begun(self.after))
        return lanes[self.before.lane]

    def _edge(self) -> str:
        before, after = self.before, self.after
        first, second = self._who(before), self._who(after)
        issue = self.run.issue_of(self._event(before))
        own = before.lane == after.lane
        if own:
            what = "quiet"
            if after.op >= 0:
                what = _fenced_by(issue, self.run.issue_of(self._event(after)))
            return (
                f"no {what} stands between {first} and {second}, nor does anything else tell "
                f"{self._name(after)} that the first is complete"
            )
        heard = self._heard()
        if before.op >= 0 and heard >= self._begun(before):
            told = self.run.events[heard]
            if not self._follows(told):
                what = _fenced_by(issue, told)
                return (
                    f"{first} is ordered before {actor(self.run, told)} only by a {what}; there is "
                    "none between them"
                )
        if self._by_count():
            return (
                f"only a count orders them: {self._name(after)}'s {self._last_wait()} can be ended by "
                f"other notifies than those that follow {first}"
            )
        return (
            f"nothing between {first} and {second} tells {self._name(after)} that {self._name(before)} "
            f"has {_done(before)}, nor {self._name(before)} that {self._name(after)} has "
            f"{_done(after)}"
        )

    def _follows(self, told: Event) -> bool:
        """Whether whoever sees the notify `told` knows that `before` is complete."""
        write = self.conflicts.steps.writes.get(told.number)
        return write is not None and write.clock[1].has(self.before.op)

    def _by_count(self) -> bool:
        """Whether in this run the later one's rank did hear of it, by notifies that need not come."""
        lanes, done = self.conflicts.clocks.at(
            self.after.lane, self._begun(self.after), roughly=True
        )
        if self.before.op < 0:
            return lanes[self.before.lane] >= self.before.at
        return done.has(self.before.op)

    def _last_wait(self) -> str:
        begun = self._begun(self.after)
        for index in range(begun, -1, -1):
            event = self.run.events[index]
            if event.owner == self.after.lane and event.kind == "wait":
                return actor(self.run, event).partition("'s ")[2]
        return "wait"


def _does(access: Access) -> str:
    return {"read": "reads", "write": "writes", "add": "adds to", "set": "sets"}[access.kind]


def _done(access: Access) -> str:
    return "read" if access.kind == "read" else "written"


def _fenced_by(first: Event, second: Event) -> str:
    """What would order the second operation of a rank after its first."""
    put_like = first.kind in _ORDERED_BY_FENCE and second.kind in _ORDERED_BY_FENCE
    return "fence or quiet" if put_like and first.peer == second.peer else "quiet"
