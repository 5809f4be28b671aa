"""The conductor: imposes a plan's schedule on real processes, one operation at a time.

It chooses by the very rule of the simulated fabric (choosing.py): a process that comes to an operation
announces it and stops; of the lanes that can move and the operations in flight that may be delivered one
is chosen, and its process is told to go on, or to copy what it had put in flight. One process moves at a
time, so a plan makes the same events on both fabrics.

A process that ends on its own is a rank that died; what it had in flight is lost with it. One that comes
to no operation within its limit is killed, after the stacks of all were taken.
"""

from __future__ import annotations

from heapq import heapify
from typing import Any

from harness.errors import NoSchedulingPoint, PeerLost, RankExited, WaitExpired
from harness.fabric.afterwards import next_steps
from harness.fabric.flight import InFlight
from harness.fabric.frames import PACKAGE
from harness.fabric.intake import Intake
from harness.fabric.lanes import Lane
from harness.fabric.rank_engine import DELIVER, EXPIRED, GO, PEER_LOST, PROBE, STOP_LANE
from harness.record import CALLED, Afterwards, Failure


class Conductor(Intake):
    """A world whose order of events is imposed."""

    def run(self) -> None:
        """From the start of every rank, in order, until nobody can move."""
        self._enabled_lanes = self.lane_count
        for lane in self.lanes:
            if lane.state != "new":  # its process ended when another lane began
                continue
            lane.state = "running"
            self.current = lane
            if not lane.worker:
                self.tellers[lane.rank].started = len(self.events)
            self._tell(lane, GO)
        self.gate = False
        self.current = self.lanes[0]
        while (lane_now := self._next()) is not None:
            self.current = lane_now
            self._move(lane_now)
        if self.ended == "returned" and any(lane.state == "running" for lane in self.lanes):
            self.ended = "blocked"

    def _move(self, lane: Lane) -> None:
        reason, error = lane.blocked_on, lane.inject
        if reason is not None and reason[0] == "wait":
            self.regions[reason[1]][lane.rank].waiters.remove(lane)
        lane.inject = None
        self._unblock(lane)
        if isinstance(error, PeerLost):
            self._tell(lane, PEER_LOST, error.rank)
        else:
            self._tell(lane, EXPIRED if isinstance(error, WaitExpired) else GO)

    def _tell(self, lane: Lane, command: int, argument: int = 0) -> bool:
        answered: bool = self.ranks.command(lane.rank, command, argument, self.clock(), lane.worker)
        self.take(lane.rank)
        if not answered:
            self.lost(lane.rank, lane)
        return answered

    def _deliver(self, op: InFlight) -> None:
        """Have the process that issued it perform one event of an operation in flight."""
        teller = self.tellers[op.lane.rank]
        own = next(number for number, held in teller.ops.items() if held is op)
        if not self._tell(op.lane, DELIVER, own):
            return
        kind = self.events[-1][1]
        region = op.target
        if kind == "land":
            assert op.local is not None
            region = op.local[0]
        elif kind == "read":
            op.data = b""  # it has been read, and will land
        if kind in ("deliver", "land"):
            del teller.ops[own]
            self.close(op)
        if region.waiters and kind not in ("read", "read_part"):
            self.wake(region)

    def lost(self, rank: int, moved: Lane | None = None) -> None:
        """A process has ended without saying so: its rank is dead, and what it had in flight is gone.

        moved: the lane that was told to move.
        """
        running = [lane for lane in self.tellers[rank].lanes if lane.state in ("new", "running")]
        if not running:
            return
        lane = moved if moved in running else running[0]
        assert lane is not None
        ending, expired = self.ranks.ending(rank), self.ranks.members[rank].expired
        owners = {lane.index for lane in self.tellers[rank].lanes}
        own = [event for event in self.events if event[0] in owners]
        asked_for = bool(own) and own[-1][1] == "fault"
        index = len(self.events)
        called = next((event for event in reversed(own) if event[8] is not None), None)
        code, lasti, operation = None, -1, str(lane.pending[0])
        if called is not None:
            code, lasti, operation = called[8], called[9], CALLED.get(called[1], called[1])
        if expired:
            error: Exception = NoSchedulingPoint(f"rank {rank}: no answer within the {expired}")
            shown = self._standing(self.ranks.members[rank].stacks)
            self.failures.append(Failure(lane.index, rank, index, error, shown, code, lasti, operation))
            self.events.append((lane.index, "raise", -1, rank, 0, 0, None, -1, None, -1))
        else:
            if not asked_for:
                error = RankExited(rank, ending.code, f"rank {rank}: {ending}")
                self.failures.append(
                    Failure(lane.index, rank, index, error, ending.log, code, lasti, operation)
                )
            self.dead.append(rank)
            for one in running:
                self.events.append((one.index, "crash", -1, rank, 0, 0, None, -1, None, -1))
        for one in running:
            self._awaits_nothing(one)
            self.end_lane(one, ("raised" if one is lane else "unwound") if expired else "dead")
            self._forget(one)

    def _awaits_nothing(self, lane: Lane) -> None:
        """Whatever is written from now on does not wake it."""
        if lane.blocked_on is not None and lane.blocked_on[0] == "wait":
            waiters = self.regions[lane.blocked_on[1]][lane.rank].waiters
            if lane in waiters:
                waiters.remove(lane)

    def _standing(self, stacks: list[str]) -> str:
        """What every rank waits for, and its Python stack, in the order of ranks."""
        told = []
        for lane in self.lanes:
            reason = lane.blocked_on
            what = f"before its {lane.pending[0]}" if lane.state == "running" else lane.state
            if reason is not None and reason[0] == "wait":
                _, number, slot, value, reached, at = reason[:6]
                held = self.regions[number][lane.rank].cells[slot]
                sign = ">=" if reached else "=="
                what = f"waits for {self.known[number][1]!r}[{at}] {sign} {value}; it is {held}"
            elif reason is not None and reason[0] == "meet":
                what = f"waits in {lane.pending[0]}; {self.arrived(reason[1])} of {reason[2]} came"
            elif reason is not None:
                what = f"waits in {reason[0]}"
            alone = len(self.tellers[lane.rank].lanes) == 1
            told.append(f"rank {lane.rank}{'' if alone else f' lane {lane.worker}'} {what}")
            if lane is self.tellers[lane.rank].lanes[-1] and lane.rank < len(stacks):  # of its process
                stack = stacks[lane.rank].splitlines()
                told += [line for line in stack if f'File "{PACKAGE}' not in line]
        return "\n".join(told)

    def _forget(self, lane: Lane) -> None:
        """Take everything that a lane had in flight out."""
        teller = self.tellers[lane.rank]
        teller.ops = {own: op for own, op in teller.ops.items() if op.lane is not lane}
        self.due[:] = [op for op in self.due if op.lane is not lane]
        self._held[:] = [op for op in self._held if op.lane is not lane]
        self._releases = [release for release in self._releases if release[2].lane is not lane]
        heapify(self._releases)
        for peer in range(self.size):
            self._out.pop(lane.index * self.size + peer, None)
            self._fenced.pop(lane.index * self.size + peer, None)
        lane.outstanding = 0
        lane.parked = False
        if lane in self._parked:
            self._parked.remove(lane)

    # The end ------------------------------------------------------------------------------------

    def afterwards(self) -> dict[int, Afterwards]:
        """The next steps of every blocked lane (fabric/afterwards.py), each in its own process."""
        found = {}
        for lane in self.lanes:
            if lane.state == "running" and lane.blocked_on is not None:
                found[lane.index] = self._probed(lane)
        return found

    def _probed(self, lane: Lane) -> Afterwards:
        memory, start, counts = self._arena.memory(), len(self.events), (self.issued, self.applied)
        lists: tuple[list[Any], ...] = (
            self.failures, self.dead, self.peers_lost, self.tellers[lane.rank].calls
        )
        lists = *lists, *self.tellers[lane.rank].began
        lengths, fired, arrivals = list(map(len, lists)), list(self.fired), dict(self._arrivals)
        lane.stopped = lane.pending, lane.blocked_on
        self.end_lane(lane, "unwound")  # nothing that it tells from now on moves the world
        lane.state = "probed"
        self.ranks.command(lane.rank, PROBE, worker=lane.worker)
        self.take(lane.rank)
        while lane.state == "probed":
            passes, lane.enabled = lane.enabled, False
            self.ranks.command(lane.rank, GO if passes else STOP_LANE, worker=lane.worker)
            self.take(lane.rank)
            if not passes:
                break
        found = next_steps(self.events[start:], lane.index, str(lane.pending[0]))
        del self.events[start:]
        for kept, length in zip(lists, lengths, strict=True):
            del kept[length:]
        self.issued, self.applied = counts
        self.fired, self._arrivals = fired, arrivals
        lane.state, lane.result = "unwound", None
        self._forget(lane)
        self._arena.put_back(memory)
        return found

    def stop(self) -> None:
        """Have every program that has not ended end."""
        for lane in self.lanes:
            if lane.state == "running":
                lane.stopped = lane.stopped or (lane.pending, lane.blocked_on)
                count = len(self.events)
                self.ranks.command(lane.rank, STOP_LANE, worker=lane.worker)
                self.take(lane.rank)
                del self.events[count:]
                if lane.state == "running":
                    lane.state = "unwound"
