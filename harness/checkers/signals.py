"""What a blocked wait was owed, and what went wrong with the signals it did get.

`debt`: who should have notified the cell (see deadlock.py for how that is inferred) and has
notified it least. `direct`: evidence at the cell itself: an operation that was issued and never
delivered, an `==` passed over, a Set or store over an arrival that nobody had awaited, or a notify
that went elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.checkers.cells import Cell, Cells, Write
from harness.checkers.wording import actor, elements
from harness.record import Blocked, Run

_UNREAD_MAX = 2
_VERBS = {"set": "Set", "line": "wrote its 64-byte line back, and here"}
Direct = tuple[str, str, int, tuple[int, ...]]  # kind, why, rank to look at, events


@dataclass(frozen=True, slots=True)
class Debt:
    """debtors: who owes most. expected: who was expected to contribute at all."""

    debtors: list[int]
    expected: tuple[int, ...]

    @property
    def even(self) -> bool:
        """Whether all expected ranks contributed alike, so that none stands out."""
        return len(self.debtors) == len(self.expected)


class Signals:
    """The cells of a blocked run, looked at from its waits."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.waits = [b for b in run.blocked if b.kind == "wait"]
        self.cells = Cells(run, [(b.window, b.rank, b.lo) for b in self.waits])

    def cell(self, blocked: Blocked) -> Cell:
        """The cell that a lane waits on."""
        return self.cells[blocked.window, blocked.rank, blocked.lo]

    def debt(self, blocked: Blocked) -> Debt:
        """Who owes this wait a notify."""
        counts = self.cell(blocked).counts()
        expected = self._expected(blocked, counts)
        most = max((counts[rank] for rank in expected), default=0)
        behind = [rank for rank in expected if counts[rank] < most]
        return Debt(behind or expected, tuple(expected))

    def _expected(self, blocked: Blocked, own: Counter[int]) -> list[int]:
        size, me = self.run.ranks, blocked.rank
        samples: dict[int, set[int]] = {}
        notifiers: set[int] = set()
        to_itself = size == 1 or (not own and len(self.run.lanes_of(me)) > 1)
        members = sorted(self.run.names[blocked.window].regions)  # of the window's group
        for cell in self.cells.in_window(blocked.window):
            issuers = set(cell.counts())
            notifiers |= issuers
            target = cell.key[1]
            to_itself = to_itself or target in issuers
            if target != me and cell.key[2] == blocked.lo and issuers:
                samples[target] = issuers
        if samples and all(len(issuers) == 1 for issuers in samples.values()):
            pairs = [(target, min(issuers)) for target, issuers in samples.items()]
            sources = {source for _, source in pairs}
            shifts = {(source - target) % size for target, source in pairs}
            thinkable = [sources] if len(sources) == 1 else []
            if len(shifts) == 1:
                thinkable.append({(me + min(shifts)) % size})
            # Who has notified this cell tells which of the two it is.
            guess = set().union(*(one for one in thinkable if one >= set(own)))
            guess = guess if to_itself else guess - {me}
            guess = guess & notifiers or guess
            if guess and guess >= set(own):
                return sorted(guess)
        if own and len(own) == 1 and all(len(issuers) == 1 for issuers in samples.values()):
            return sorted(own)
        return [rank for rank in members if rank != me or to_itself]

    def direct(self, blocked: Blocked, debt: Debt) -> Direct | None:
        """Kind, reason, rank and events where the record itself shows what went wrong."""
        lost = self._lost(blocked)
        if lost is not None or blocked.kind != "wait":
            return lost
        if blocked.compare == "==" and blocked.value > blocked.expected:
            past = self._past(blocked)
            by_data = past is not None and not past.notifies
            return (by_data and self._overwritten(blocked)) or self._overshoot(blocked, past)
        return (
            self._overdrawn(blocked) or self._overwritten(blocked) or self._elsewhere(blocked, debt)
        )

    def _overdrawn(self, blocked: Blocked) -> Direct | None:
        """The first write that took more than there was, if without it the wait would be over."""
        lowest = min((write.after for write in self.cell(blocked).writes), default=0)
        if -lowest < blocked.expected - blocked.value:
            return None
        for write in self.cell(blocked).writes:
            if write.how == "add" and write.after < 0 <= write.before:
                why = (
                    f"{actor(self.run, write.event)} took back {write.before - write.after} at event "
                    f"{write.index}, when the cell held {write.before}"
                )
                return "overdrawn", why, write.rank, (write.index,)
        return None

    def _lost(self, blocked: Blocked) -> Direct | None:
        """An operation that the wait (or quiet, or get) needs, issued and never delivered."""
        for index, event in self.run.undelivered():
            here = (event.window, event.peer, event.lo) == (
                blocked.window, blocked.rank, blocked.lo
            )
            own = blocked.kind in ("quiet", "get") and event.owner == blocked.lane
            if own or (blocked.kind == "wait" and here):
                why = f"{actor(self.run, event)} was issued at event {index} and never delivered"
                return "lost_delivery", why, self.run.rank_of(event), (index,)
        return None

    def _past(self, blocked: Blocked) -> Write | None:
        """The first write that took the cell past the awaited value."""
        return next((w for w in self.cell(blocked).writes if w.after > blocked.expected), None)

    def _overshoot(self, blocked: Blocked, past: Write | None) -> Direct:
        if past is None:
            return "overshoot", "the cell is past the awaited value", blocked.rank, ()
        why = (
            f"{actor(self.run, past.event)} took the cell from {past.before} to {past.after} at "
            f"event {past.index}, past the {blocked.expected} that == looks for"
        )
        return "overshoot", why, blocked.rank, (past.index,)

    def _overwritten(self, blocked: Blocked) -> Direct | None:
        """The last unawaited arrival that a Set, a put or a store replaced."""
        cell = self.cell(blocked)
        for before, write in reversed(list(zip(cell.writes, cell.writes[1:], strict=False))):
            if write.how == "add" or not before.notifies:
                continue
            spoilt = _holds(blocked, before.after) and not _holds(blocked, write.after)
            if write.after > before.after and (write.notifies or not spoilt):
                continue
            if any(before.index < index < write.index for index, _ in cell.waits):
                continue
            if before.rank == write.rank and not spoilt:
                continue
            verb = _VERBS.get(write.how, write.how)
            why = (
                f"{actor(self.run, write.event)} ({verb} {write.after}, event {write.index}) "
                f"overwrote the {before.after} that {actor(self.run, before.event)} had left there "
                f"at event {before.index}, before any wait saw it"
            )
            return "overwritten_signal", why, write.rank, (before.index, write.index)
        return None

    def _elsewhere(self, blocked: Blocked, debt: Debt) -> Direct | None:
        """A debtor's notify that went to another cell here, or to this cell of another rank."""
        deficit = blocked.expected - blocked.value
        here = self.cell(blocked).counts()
        for cell in self.cells.in_window(blocked.window):
            _, target, lo = cell.key
            if cell.key == self.cell(blocked).key:
                continue
            if target == blocked.rank:
                found = self._other_cell(blocked, debt, cell, deficit)
            elif lo == blocked.lo:
                found = self._other_rank(debt, cell, here, deficit)
            else:
                continue
            if found is not None:
                size = self.run.names[blocked.window].itemsize
                there = elements(self.run, blocked.window, lo, lo + size)
                awaits = "no wait is blocked" if self._awaited(cell) else "nobody awaits it"
                why = (
                    f"{actor(self.run, found.event)} went to {there} on rank {target}, where "
                    f"{awaits}: a surplus of {deficit}, exactly what is missing here"
                )
                return "wrong_cell", why, found.rank, (found.index,)
        return None

    def _other_cell(
        self, blocked: Blocked, debt: Debt, cell: Cell, deficit: int
    ) -> Write | None:
        """A cell here that a debtor notifies on no other rank, though it notifies the awaited one
        there; or one that nobody else uses while its owner has no other wait ahead."""
        lo = cell.key[2]
        peers = [
            other for other in self.cells.in_window(blocked.window)
            if other.key[1] != blocked.rank
        ]
        for debtor in debt.debtors:
            mine = [w for w in cell.writes if w.rank == debtor and w.notifies]
            if not mine or sum(w.after - w.before for w in mine) != deficit:
                continue
            used = {other.key[2] for other in peers if debtor in other.counts()}
            used |= self._ahead(debtor, blocked)
            if lo not in used and blocked.lo in used:
                return mine[-1]
            alone = len(cell.counts()) == 1 and all(
                other.key[2] != lo for other in peers
            )
            if alone and not self._awaited(cell) and "wait" not in blocked.afterwards.operations:
                return mine[-1]
        return None

    def _ahead(self, debtor: int, blocked: Blocked) -> set[int]:
        """Cells of the same window that a blocked rank is yet to notify on ranks other than this."""
        return {
            lo
            for other in self.waits if other.rank == debtor
            for window, target, lo in other.afterwards.notifies
            if window == blocked.window and target != blocked.rank
        }

    def _other_rank(
        self, debt: Debt, cell: Cell, here: Counter[int], deficit: int
    ) -> Write | None:
        """The same cell on another rank that a debtor notified more often than everybody else."""
        there = cell.counts()
        for debtor in debt.debtors:
            if debt.even and len(debt.expected) > 1:
                return None
            usual_there = max((n for r, n in there.items() if r != debtor), default=0)
            usual_here = max((n for r, n in here.items() if r != debtor), default=0)
            extra, short = there[debtor] - usual_there, usual_here - here[debtor]
            mine = [w for w in cell.writes if w.rank == debtor and w.notifies]
            if usual_there and 0 < extra == short:
                amount = sum(w.after - w.before for w in mine[-extra:])
                if amount == deficit:
                    return mine[-1]
        return None

    def left_behind(self, blocked: Blocked) -> bool:
        """Whether the same cell of every other rank was notified more often than the awaited one: in a
        program that goes in step, what was left out here, and no circle."""
        mine = self.cell(blocked).counts().total()
        others = [
            cell.counts().total() for cell in self.cells.in_window(blocked.window)
            if cell.key[2] == blocked.lo and cell.key[1] != blocked.rank and self._awaited(cell)
        ]
        return bool(others) and min(others) > mine

    def idle_sets(self, blocked: Blocked) -> list[str]:
        """Notifies with Set that did not raise the awaited cell, where an add would have."""
        return [
            f"{actor(self.run, write.event)} set it to {write.after} at event {write.index}, when "
            f"it held {write.before}"
            for write in self.cell(blocked).writes
            if write.how == "set" and write.after <= write.before
        ][:_UNREAD_MAX]

    def unread(self) -> list[str]:
        """Notifies to cells that no wait of this run has looked at, in windows that are waited on;
        nothing where such cells are many, as they then belong to the program."""
        windows = {b.window for b in self.waits}
        lines = []
        for window in sorted(windows):
            for cell in self.cells.in_window(window):
                if cell.counts() and not self._awaited(cell):
                    last = [write for write in cell.writes if write.notifies][-1]
                    lo = cell.key[2]
                    there = elements(self.run, window, lo, lo + 4)
                    lines.append(
                        f"{actor(self.run, last.event)} went to {there} of rank {cell.key[1]}, "
                        "which no wait has looked at so far"
                    )
        return lines if len(lines) <= _UNREAD_MAX else []

    def _awaited(self, cell: Cell) -> bool:
        waiting = {(b.window, b.rank, b.lo) for b in self.waits}
        return bool(cell.waits) or cell.key in waiting


def _holds(blocked: Blocked, value: int) -> bool:
    if blocked.compare == ">=":
        return value >= blocked.expected
    return value == blocked.expected
