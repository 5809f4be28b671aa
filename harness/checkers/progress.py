"""Whether the run came to an end by itself.

livelock: nobody can move but lanes that poll memory which nobody will write any more. overrun: the
event limit. no_scheduling_point: a rank that called no operation until the watchdog stopped it.
Not modelled: fairness. After an exception polls are its consequences, not findings of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.checkers.failures import first_failure, real_failures, stuck_at
from harness.checkers.wording import (
    decoded,
    elements,
    finding,
    last_event,
    ranks,
    shown,
    unreturned,
)
from harness.finding import Finding
from harness.record import Event, Run, place


class Progress:
    """Kinds: livelock, overrun, no_scheduling_point."""

    name = "progress"

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding."""
        if run.failures:
            yield from first_failure(run, self.name)
        if run.ended in ("returned", "blocked") or real_failures(run):
            return
        if run.ended == "livelock":
            yield self._livelock(run)
        elif run.ended == "overrun":
            yield self._overrun(run)

    def _livelock(self, run: Run) -> Finding:
        lines, events, sites = [], [], []
        for blocked in run.livelock:
            last = last_event(run, blocked.lane)
            if last is None:
                continue
            index, event = last
            events.append(index)
            sites.append(run.site(event))
            lines.append(f"{run.lane_name(blocked.lane)} polls {_read(run, event)}")
        lines += [f"{run.lane_name(blocked.lane)} {stuck_at(run, blocked)}" for blocked in run.blocked]
        if run.dead:
            lines.append(f"{ranks(run.dead)} died")
        rank = run.livelock[0].rank
        return finding(
            self.name, "livelock", rank,
            f"{lines[0]} for ever; no rank is left that could write it", sites=sites,
            evidence=lines, events=events,
        )

    def _overrun(self, run: Run) -> Finding:
        lines, sites = [], []
        running = unreturned(run)
        for lane in [lane for rank in running for lane in run.lanes_of(rank)]:
            last = last_event(run, lane)
            if last is not None:
                event = last[1]
                sites.append(run.site(event))
                lines.append(
                    f"{run.lane_name(lane)} last did {event.kind} at {place(event.code, event.lasti)}"
                )
        rank = running[0] if running else 0
        return finding(
            self.name, "overrun", rank,
            f"{ranks(running)} had not returned when the limit of {len(run.raw)} events was "
            f"reached; {lines[0] if lines else 'no lane had moved'}",
            sites=sites, evidence=lines,
        )


def _read(run: Run, event: Event) -> str:
    """`'flag'[0] on rank 1 = [0] with load at file.py:3 in f`."""
    value = ""
    if event.window < 0:
        return f"with {event.kind} at {place(event.code, event.lasti)}"
    if isinstance(event.value, bytes) and len(event.value) == event.hi - event.lo:
        value = f" = {shown(decoded(event.value, run.names[event.window].dtype))}"
    memory = elements(run, event.window, event.lo, event.hi)
    return (
        f"{memory} on rank {event.peer}{value} with {event.kind} at "
        f"{place(event.code, event.lasti)}"
    )
