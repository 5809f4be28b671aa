"""Why a world stopped in which lanes were still blocked: one finding, about the root.

For every blocked wait the ranks that should have notified its cell are inferred from this run
alone: from who notifies the same cell on other ranks (always the same source, always the same
distance, all of them), or from who notified this one before; failing that, every other rank. A
lane depends on those among them that contributed least; at a rendezvous, on those that never
arrived. The root is a lane with direct evidence (overshoot, overwritten signal, wrong cell), else
one whose debtor is no longer running, else a knot of lanes that depend on each other. Source:
reference/algorithms.md section 6.

A knot is a cycle only if every lane in it would be freed by another one of it, as the fabric found
by letting each go on alone (fabric/afterwards.py); a wait that nobody would notify is a missing
notify. Not modelled: what a lane would do after its next wait. After an exception blocked lanes are
consequences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from harness.checkers.failures import real_failures, stuck_at
from harness.checkers.leaks import leaks
from harness.checkers.signals import Debt, Signals
from harness.checkers.starvation import holders, starvation
from harness.checkers.waits import graph
from harness.checkers.wording import blocked_site, finding, ranks, times
from harness.finding import Finding
from harness.record import Blocked, Run, place

ORDER = (
    "lost_delivery", "dead_rank", "overshoot", "overdrawn", "overwritten_signal", "wrong_cell",
    "core_starvation", "cycle", "missing_notify", "missing_arrival", "unsatisfied",
)


class Deadlock:
    """Kinds: those of ORDER, and signal_leak (leaks.py)."""

    name = "deadlock"

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding for the world."""
        if run.ended == "returned":
            return leaks(run)
        if run.ended != "blocked" or not run.blocked or real_failures(run):
            return ()
        if any(blocked.kind in ("work", "lock") for blocked in run.blocked):
            return ()  # in calls of torch.distributed, or locks of its threads: torch_waits.py
        return (_Diagnosis(run).finding(),)


class _Diagnosis:
    """One blocked world."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.blocked = {blocked.lane: blocked for blocked in run.blocked}
        self.stuck: dict[int, list[Blocked]] = defaultdict(list)  # by rank
        for blocked in run.blocked:
            self.stuck[blocked.rank].append(blocked)
        self.signals = Signals(run)
        self.debts = {
            b.lane: self.signals.debt(b) if b.kind == "wait" else Debt(self._absent(b), ())
            for b in run.blocked
        }
        self.direct = {
            b.lane: found
            for b in run.blocked
            if (found := self.signals.direct(b, self.debts[b.lane])) is not None
        }

    def _absent(self, blocked: Blocked) -> list[int]:
        """Ranks that never arrived at the rendezvous a lane is blocked in."""
        kind, needed = "window_arrive", 1
        if blocked.kind in ("sync", "barrier"):
            kind, needed = "sync_arrive", int(blocked.detail.split()[-1])  # "sync 3": the third
        elif blocked.kind == "join":
            return [blocked.rank]
        elif blocked.kind != "window":
            return []
        arrivals = dict.fromkeys(blocked.group or range(self.run.ranks), 0)
        for raw in self.run.raw:
            if raw[1] == kind and (
                (raw[6] or ()) == blocked.group if kind == "sync_arrive"
                else raw[2] == blocked.window
            ):
                arrivals[raw[3]] += 1
        return [rank for rank, count in arrivals.items() if count < needed]

    def _debtors(self, lane: int) -> list[int]:
        """The blocked lanes, among those of the debtors, that could still free a lane."""
        blocked = self.blocked[lane]
        return [
            n for n, other in self.blocked.items()
            if other.rank in self.debts[lane].debtors
            and (other.rank != blocked.rank or n != lane or self._alone(blocked.rank))
        ]

    def _alone(self, rank: int) -> bool:
        return len(self.run.lanes_of(rank)) == 1

    # The root -------------------------------------------------------------------------------------

    def _roots(self) -> dict[int, str]:
        """The lanes at the root of it all, each with its class."""
        if self.direct:
            return {lane: found[0] for lane, found in self.direct.items()}
        if self.run.dead:
            return dict.fromkeys(self.blocked, "dead_rank")
        if self.run.starved:
            return dict.fromkeys(holders(self.run), "core_starvation")
        alone = {
            lane: "cycle" for lane, b in self.blocked.items()
            if b.kind == "wait" and not self.signals.cell(b).counts() and self._alone(b.rank)
            and (b.window, b.rank, b.lo) in b.afterwards.notifies
        }
        if alone:
            return {min(alone): "cycle"}
        ended = {
            lane: self._plain(self.blocked[lane])
            for lane, debt in self.debts.items()
            if any(rank not in self.stuck for rank in debt.debtors) and not self._to_come(lane)
        }
        return ended or self._knot()

    def _to_come(self, lane: int) -> bool:
        """Whether another blocked lane would notify the cell, which nobody has notified yet."""
        blocked = self.blocked[lane]
        return blocked.kind == "wait" and not self.signals.cell(blocked).counts() and any(
            (blocked.window, blocked.rank, blocked.lo) in other.afterwards.notifies
            for n, other in self.blocked.items() if n != lane
        )

    @staticmethod
    def _plain(blocked: Blocked) -> str:
        if blocked.kind == "wait":
            return "missing_notify"
        return "missing_arrival" if blocked.compare == ">=" else "unsatisfied"

    def _knot(self) -> dict[int, str]:
        """The first set of lanes that depend on each other and on nobody else."""
        reach: dict[int, set[int]] = {}
        for lane in self.blocked:
            todo = self._debtors(lane)
            seen: set[int] = set()
            while todo:
                other = todo.pop()
                if other not in seen:
                    seen.add(other)
                    todo.extend(self._debtors(other))
            reach[lane] = seen
        head = next((n for n in self.blocked if all(n in reach[m] for m in reach[n])), None)
        if head is None:
            return {n: self._plain(b) for n, b in self.blocked.items()}
        knot = sorted(reach[head] or {head})
        waits = [n for n in knot if self.blocked[n].kind == "wait"]
        freed = all(self._freed_by(n, knot) for n in knot)
        if not waits:
            if freed:
                return dict.fromkeys(knot, "cycle")
            return {n: self._plain(self.blocked[n]) for n in knot}
        silent = [n for n in waits if not self._freed_by(n, knot)]
        if silent or not freed:
            return dict.fromkeys(silent or waits, "missing_notify")
        behind = [n for n in waits if self.signals.left_behind(self.blocked[n])]
        return dict.fromkeys(behind, "missing_notify") if behind else dict.fromkeys(knot, "cycle")

    def _freed_by(self, lane: int, knot: list[int]) -> list[int]:
        """The lanes of the knot that would do what `lane` waits for, once their own wait is over."""
        blocked = self.blocked[lane]
        if blocked.kind == "wait":
            cell = (blocked.window, blocked.rank, blocked.lo)
            return [n for n in knot if cell in self.blocked[n].afterwards.notifies]
        there = (lane_kind(blocked), blocked.group)
        return [n for n in self._debtors(lane) if there in self.blocked[n].afterwards.arrives]

    # The finding ----------------------------------------------------------------------------------

    def finding(self) -> Finding:
        """The finding: root first, then a line for every blocked lane."""
        roots = self._roots()
        kind = min(roots.values(), key=ORDER.index)
        if kind == "core_starvation":
            return starvation(self.run)
        lanes = sorted(lane for lane, found in roots.items() if found == kind)
        first = lanes[0]
        culprit, message, events = self._message(kind, first, lanes)
        lines = [self.direct[lane][1] for lane in lanes[1:] if lane in self.direct]
        others = [lane for lane in self.blocked if lane not in lanes]
        lines += [self._line(self.blocked[lane]) for lane in (*lanes, *others)]
        if kind in ("missing_notify", "cycle"):
            for lane in lanes:
                if self.blocked[lane].kind == "wait":
                    lines += self.signals.idle_sets(self.blocked[lane])
            lines += self.signals.unread()
        return finding(
            Deadlock.name, kind, culprit, message,
            sites=[blocked_site(self.blocked[lane]) for lane in lanes], evidence=lines,
            events=events, graph=graph(self.run, self.blocked, self.debts, lanes),
            because=self._because(kind, first, events),
        )

    def _because(self, kind: str, lane: int, events: tuple[int, ...]) -> str:
        """Who spoilt a signal: its cell's owner, data, or (the table's usual row) another signal."""
        if kind != "overwritten_signal" or not events:
            return ""
        spoiler = self.run.events[events[-1]]
        if spoiler.kind == "write_back":
            return "shared_line"
        if self.run.rank_of(spoiler) == self.blocked[lane].rank:
            return "reset"
        return "data_over_signal" if isinstance(spoiler.value, bytes) else ""

    def _message(self, kind: str, lane: int, lanes: list[int]) -> tuple[int, str, tuple[int, ...]]:
        blocked = self.blocked[lane]
        what = f"{self.run.lane_name(lane)} {stuck_at(self.run, blocked)}"
        if lane in self.direct:
            _, why, rank, events = self.direct[lane]
            return rank, f"{what}; {why}", events
        debtors = self.debts[lane].debtors
        gone = [rank for rank in debtors if rank not in self.stuck] or debtors
        if kind == "dead_rank":
            return self.run.dead[0], f"{what}; {ranks(self.run.dead)} died", ()
        if kind == "cycle" and len(lanes) == 1:
            return blocked.rank, f"{what}; only it could notify that cell, and would after this wait", ()
        if kind == "cycle":
            who = ranks(lanes)
            if len(self.run.lanes) > self.run.ranks:
                who = ", ".join(map(self.run.lane_name, lanes))
            return blocked.rank, f"{who} wait for each other: {self._round(lanes)}", ()
        if kind == "missing_arrival":
            return gone[0], f"{what}; {ranks(gone)} never arrived", ()
        if kind == "missing_notify":
            return gone[0] if gone else blocked.rank, f"{what}; {self._owed(lane, gone)}", ()
        return blocked.rank, what, ()

    def _round(self, lanes: list[int]) -> str:
        """`rank 0 for ranks 1 and 2 at …; rank 1 for …`."""
        parts = []
        in_it = {self.blocked[lane].rank for lane in lanes}
        for lane in lanes:
            b = self.blocked[lane]
            debtors = [
                rank for rank in self.debts[lane].debtors
                if (rank != b.rank or not self._alone(rank)) and rank in in_it
            ]
            parts.append(f"{self.run.lane_name(lane)} for {ranks(debtors)} at {place(b.code, b.lasti)}")
        return "; ".join(parts)

    def _owed(self, lane: int, gone: list[int]) -> str:
        cell = self.signals.cell(self.blocked[lane])
        counts = cell.counts()
        debt = self.debts[lane]
        if not counts:
            return f"nobody ever notified it, {ranks(gone)} could have"
        if debt.even:
            return (
                f"{ranks(debt.debtors)} notified it {times(counts[gone[0]])}"
                f"{' each' if len(debt.debtors) > 1 else ''}, which is not enough"
            )
        most = max(counts.values())
        fewer = sorted({counts[rank] for rank in gone}, reverse=True)
        who = [ranks(rank for rank in gone if counts[rank] == count) for count in fewer]
        told = [f"{named} {times(count)}" for named, count in zip(who[1:], fewer[1:], strict=True)]
        told.insert(0, f"{who[0]} notified it {times(fewer[0])}")
        return f"{' and '.join(told)}, others {times(most)}"

    def _line(self, blocked: Blocked) -> str:
        """Where a lane is blocked, who contributed and who did not."""
        text = f"{self.run.lane_name(blocked.lane)} {stuck_at(self.run, blocked)}"
        debt = self.debts[blocked.lane]
        if blocked.kind != "wait":
            missing = ", ".join(f"rank {r} ({self._state(r)})" for r in debt.debtors)
            return f"{text}; not arrived: {missing}" if missing else text
        cell = self.signals.cell(blocked)
        counts = cell.counts()
        gave = ", ".join(f"rank {rank} {times(counts[rank])}" for rank in sorted(counts))
        owing = [rank for rank in debt.debtors if not counts[rank]]
        text += f"; contributed: {gave or 'no rank'}"
        if taken := cell.taken():
            text += "; taken back: " + ", ".join(f"rank {r} {taken[r]}" for r in sorted(taken))
        less = [rank for rank in debt.debtors if counts[rank] and not debt.even]
        if owing:
            text += "; not: " + ", ".join(f"rank {r} ({self._state(r)})" for r in owing)
        if less:
            text += "; less than others: " + ", ".join(f"rank {r} ({self._state(r)})" for r in less)
        return text

    def _state(self, rank: int) -> str:
        if rank in self.stuck:
            return "; ".join(
                f"{f'lane {self.run.lanes[b.lane][1]} ' if not self._alone(rank) else ''}"
                f"blocked in {b.kind} at {place(b.code, b.lasti)}"
                for b in self.stuck[rank]
            )
        if rank in self.run.dead:
            return "died"
        return "lost its peer" if rank in self.run.peers_lost else "returned"


def lane_kind(blocked: Blocked) -> str:
    """What a lane that would free this one must come to: a sync (of which barrier is one) or a window."""
    return "sync_arrive" if blocked.kind in ("sync", "barrier") else f"{blocked.kind}_arrive"
