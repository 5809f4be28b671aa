"""Lanes that begin in the middle of a run: the threads that a program starts (thread carrier only).

They are owners like the others and stand behind the lanes that were there at the start, in the order in
which they began. An operation's number as an owner follows those of the lanes; since nobody knows during
the run how many there will be, late lanes count down from FIRST_LATE until it ends, when everything that
the record keeps is numbered anew: so a run without threads has the numbers that it always had.

A late lane may be dropped: its rank has ended, and Python ends such threads without more ado. It never
moves again, and is unwound with all others when the run ends.

A thread that wakes by the clock again and again (a heartbeat) would keep a blocked world alive for ever:
when nobody but such threads has moved for ROUNDS_MAX rounds of each, their alarms ring no more. And where
a rank has died, whoever waits for a collective has lost it before a thread's alarm rings: connections
break at once, before any watchdog's limit.

Not modelled: threads on a greenlet carrier (a rank program's have lanes instead).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from heapq import heapify
from typing import Any

from harness.errors import ThreadStarted
from harness.fabric import threads
from harness.fabric.choosing import Choosing
from harness.fabric.lanes import Alarm, Lane
from harness.record import Blocked, Failure

FIRST_LATE = -2  # -1 is nobody
ROUNDS_MAX = 256
LIVING_MAX = 256  # threads of a world at one time


def running_number(number: int, lanes: int, late: int) -> int:
    """An owner's number during the run. number: in the record, of `lanes` lanes, `late` of them late."""
    first = lanes - late
    if number < first:
        return number
    return FIRST_LATE - (number - first) if number < lanes else number - late


class LateLanes(Choosing):
    """A world whose programs may start threads."""

    failures: list[Failure]
    threaded: bool
    struck: Lane | None = None  # whom the watchdog has struck
    _rounds = 0
    _moved = 0  # how many events have been looked at for whether others have moved

    def _begin(self, lane: Lane) -> None:
        raise NotImplementedError

    def start_thread(self, program: Callable[[], Any], rank: int, name: str) -> Lane:
        """A new lane of `rank`, which may be chosen from now on. Raises ThreadStarted where LIVING_MAX
        live."""
        if sum(bool(lane.thread) and lane.state == "running" for lane in self.lanes) >= LIVING_MAX:
            raise ThreadStarted(
                f"rank {rank}: thread {name!r} would be one more than the {LIVING_MAX} that may live at "
                "one time in a simulated world"
            )
        late = len(self.lanes) - self.lane_count
        lane = Lane(FIRST_LATE - late, program, rank, sum(one.rank == rank for one in self.lanes))
        lane.stream = rank  # threads share their process's generators
        lane.thread = name
        lane.fresh = True
        self.lanes.append(lane)
        self._enabled_lanes += 1
        self._begin(lane)
        return lane

    def drop(self, lane: Lane) -> None:
        """The lane's rank has ended before it: it never moves again."""
        if lane.state != "running":
            return
        if lane.parked:
            lane.parked = False
            self._parked.remove(lane)
        elif lane.enabled:
            self._enabled_lanes -= 1
        lane.enabled = False
        lane.blocked_on = lane.inject = None
        lane.state = "dropped"

    def _next_alarm(self) -> Alarm | None:
        late = len(self.lanes) - self.lane_count
        if late and self.dead and self._only_threads_sleep() and self._waiting_for_works():
            return None
        if late and self._nobody_else(late):
            others = [one for one in self._sleepers if not one[3].thread and one[3].blocked_on is one[4]]
            if not others:
                return None
            self._sleepers.remove(first := min(others))
            heapify(self._sleepers)
            return first
        return super()._next_alarm()

    def _bereft(self) -> list[Lane]:
        """Who waits for a collective, if anybody does: only then can locks and queues say more."""
        return self._waiting_for_works() or super()._bereft()

    def _waiting_for_works(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.stuck and _awaits(lane, "work")]

    def _only_threads_sleep(self) -> bool:
        return not any(
            lane.blocked_on is reason and not lane.thread and not _awaits(lane, "work")
            for _, _, _, lane, reason in self._sleepers
        )

    def _nobody_else(self, late: int) -> bool:
        """Whether only threads have moved for so long that their alarms are to ring no more."""
        if any(event[0] >= 0 for event in self.events[self._moved :]):
            self._rounds = 0
        self._moved = len(self.events)
        self._rounds += 1
        return self._rounds > ROUNDS_MAX * late

    def _carried_to_its_end(self, lane: Lane) -> None:
        """Give a thread's carrier back at once: a program may start thousands of short ones."""
        if lane.thread:
            threads.give_back(lane.carrier)
            lane.carrier = None

    def idles(self, lane: Lane) -> bool:
        """Whether a lane is a thread that waits for the clock at most."""
        reason = lane.blocked_on
        return bool(lane.thread) and reason is not None and any(
            sleeper[3] is lane and sleeper[4] is reason for sleeper in self._sleepers
        )

    def thread_id(self, hub: int) -> int:
        """The thread that runs now. hub: the one that started the run."""
        lane = self.current
        carried = self.threaded and lane.state != "new" and lane.carrier is not None
        return lane.carrier.greenlet.ident if carried else hub

    def _too_slow(self, lane: Lane, limit: float) -> str:
        """What a lane is told that was too slow, or that gets the error of another one by a future."""
        struck = self.struck
        who = f"thread {struck.thread!r}: " if struck and struck is not lane and struck.thread else ""
        return f"rank {lane.rank}: {who}no scheduling point for {limit:g} s"

    def number_anew(self, blocked: list[Blocked]) -> None:
        """The run is over: late lanes get the numbers behind the others', and operations those behind."""
        first = self.lane_count
        late = len(self.lanes) - first
        if not late:
            return

        def final(number: int) -> int:
            if number <= FIRST_LATE:
                return first + FIRST_LATE - number
            return number + late if number >= first else number

        self.events[:] = [(final(event[0]), *event[1:]) for event in self.events]
        self.touched[:] = [dataclasses.replace(one, lane=final(one.lane)) for one in self.touched]
        for lane in self.lanes:
            lane.index = final(lane.index)
        for failure in self.failures:
            failure.lane = final(failure.lane)
        for waits in blocked:
            waits.lane, waits.holder = final(waits.lane), final(waits.holder)
        self.lane_count += late


def _awaits(lane: Lane, kind: str) -> bool:
    return lane.blocked_on is not None and lane.blocked_on[0] == kind


__all__ = ["FIRST_LATE", "LateLanes", "running_number"]
