"""What the ranks' processes tell becomes one record, and a twin of their lanes and operations.

Each process numbers its events and operations by itself; here they get the world's numbers, in the order
of the run. A lane's twin knows what it will do next and why it is blocked, so that the engine which
chooses (choosing.py), the analysis of blocked lanes and the checkers work on it as on a simulated one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch

from harness.errors import RankDied
from harness.fabric.arena import Arena, region_bytes
from harness.fabric.choosing import Chooser, Choosing
from harness.fabric.flight import InFlight
from harness.fabric.lanes import Lane
from harness.fabric.memory import ITEMSIZE, Region
from harness.fabric.windows import OneRegion, SharedWindows
from harness.plan import Hold, Preempt
from harness.record import Call, Failure, Touched

DTYPES = {str(dtype): dtype for dtype in ITEMSIZE}


class Teller:
    """What is known of one rank's process. length: of its log so far. calls: collective ones."""

    __slots__ = (
        "began", "calls", "codes", "failure", "indexes", "lanes", "length", "numbers", "ops", "rank",
        "started",
    )

    def __init__(self, rank: int, lanes: Sequence[Lane]) -> None:
        self.rank = rank
        self.lanes = lanes
        self.length = 8
        self.codes: list[CodeType] = []
        self.numbers: dict[int, int] = {}  # operations: its own number -> the world's
        self.ops: dict[int, InFlight] = {}  # in flight, by its own number
        self.indexes: list[int] = []  # events: its own index -> the world's
        self.calls: list[Call] = []
        self.began: list[list[int]] = [[] for _ in lanes]  # by lane
        self.started = 0  # events before its program began
        self.failure: Failure | None = None  # told; its event follows

    def code(self, number: int) -> CodeType | None:
        """A code object by its number."""
        return None if number < 0 else self.codes[number]


class Intake(Choosing):
    """A world of processes as the harness knows it. workers: how many lanes each rank has."""

    ranks: Any  # the processes: a Crew

    def __init__(
        self, arena: Arena, workers: Sequence[int], faults: int, *,
        schedule: Sequence[Hold | Preempt] = (), eager: bool = False, chooser: Chooser | None = None,
        guide: Callable[[int], int] | None = None, events_max: int = 0,
    ) -> None:
        size = len(workers)
        super().__init__(
            size, schedule, eager=eager, chooser=chooser, guide=guide, events_max=events_max
        )
        self.failures: list[Failure] = []
        self.peers_lost: list[int] = []
        self.windows = SharedWindows(size)
        self.regions: dict[int, Any] = {}
        self.known: dict[int, tuple[str, str, tuple[int, ...], torch.dtype]] = {}
        self.windows.regions = self.regions  # type: ignore[assignment]  # as they are told
        self.windows.names = self.known  # type: ignore[assignment]
        self.fired = [0] * faults
        self.seen = [0] * faults
        self.lane_count = sum(workers)
        who = [(rank, worker) for rank, count in enumerate(workers) for worker in range(count)]
        self.lanes = [Lane(index, _nothing, rank, worker) for index, (rank, worker) in enumerate(who)]
        self.tellers = [
            Teller(rank, [lane for lane in self.lanes if lane.rank == rank]) for rank in range(size)
        ]
        self.natural = False
        self._on = {name[4:]: getattr(self, name) for name in dir(self) if name.startswith("_on_")}
        self._arena = arena
        self._late: list[tuple[int, int, tuple[Any, ...]]] = []  # natural: by stamp, rank

    def take(self, rank: int) -> None:
        """Read what a rank has told since the last time."""
        teller = self.tellers[rank]
        for length, records in self._arena.read(rank, teller.length):
            teller.length = length
            for record in records:
                kind = record[0]
                if kind == "event" and self.natural:
                    self._late.append((record[1], rank, record[1:]))
                else:
                    self._on[kind](teller, *record[1:])

    def settle(self) -> None:
        """Natural order: put the events of all ranks into their order."""
        for _, rank, rest in sorted(self._late, key=lambda entry: entry[0]):
            self._on_event(self.tellers[rank], *rest)
        self._late.clear()

    # Records ------------------------------------------------------------------------------------

    def _on_code(self, teller: Teller, code: CodeType) -> None:
        teller.codes.append(code)

    def _on_event(
        self, teller: Teller, stamp: int, told: tuple[Any, ...], code: int, lasti: int,
        awaited: tuple[int, bool] | None, source: tuple[int, int] | None,
    ) -> None:
        owner, kind, window, peer, lo, hi, value, number = told
        rank = teller.rank
        if owner >= self.lane_count:
            number = teller.numbers[number]
            owner = self.lane_count + number
        elif number >= 0:
            own, number = number, self.issued
            teller.numbers[own] = number
            self.issued += 1
        index = len(self.events)
        teller.indexes.append(index)
        if awaited is not None:
            self.awaited[index] = awaited
        if source is not None:
            self.sources[number] = source
        self.events.append((owner, kind, window, peer, lo, hi, value, number, teller.code(code), lasti))
        if kind == "fence":
            self.lanes[owner].fence_mark = self.issued
        elif kind == "store" and not self.natural:
            region = self.regions[window][rank]
            if region.waiters:
                self.wake(region)
        elif kind == "fault":
            self.fired[lo] += 1
        elif kind == "crash" and rank not in self.dead:
            self.dead.append(rank)
        elif kind == "raise" and teller.failure is not None:
            teller.failure.clock = index
            self.failures.append(teller.failure)
            teller.failure = None

    def _on_issue(
        self, teller: Teller, own: int, kind: str, peer: int, window: int, start: int, nbytes: int,
        ordered: bool, after: int, landing: int,  # noqa: FBT001
    ) -> None:
        event = self.events[-1]
        lane = self.lanes[event[0]]
        op = InFlight(
            teller.numbers[own], kind, lane, peer, window, self.regions[window][peer], start, nbytes,
            None, lane.fence_mark, event[8], event[9],
        )
        if after >= 0 and after in teller.ops:
            op.after = teller.ops[after]
            op.after.signal = op
        if landing >= 0:
            op.local = self.regions[landing][lane.rank], 0, landing
            op.waiter = lane if event[1] == "get_issue" else None
        teller.ops[own] = op
        self.issue(op, ordered=ordered)

    def _on_point(
        self, teller: Teller, worker: int, pending: tuple[Any, ...], blocked: tuple[Any, ...] | None,
        enabled: bool, arrival: tuple[str, int] | None, polled: bool, alarm: float | None,  # noqa: FBT001
    ) -> None:
        lane = teller.lanes[worker]
        lane.pending = pending
        lane.blocked_on = None
        if blocked is not None:
            *rest, code, lasti = blocked
            lane.blocked_on = (*rest, teller.code(code), lasti)
            if blocked[0] == "wait" and not self.natural:
                self.regions[blocked[1]][lane.rank].waiters.append(lane)
        if not enabled and lane.enabled:
            lane.enabled = False
            self._enabled_lanes -= 1
        if alarm is not None:
            self.wake_at(lane, alarm)
        if arrival is not None:
            self.arrive(*arrival)
        if polled:
            self.polls(lane)

    def _on_inject(self, teller: Teller, worker: int) -> None:
        self.inject(teller.lanes[worker], RankDied())

    def _on_memory(
        self, teller: Teller, number: int, kind: str, name: str, shape: tuple[int, ...], dtype: str,
        ranks: tuple[int, ...], at: int, nbytes: int,
    ) -> None:
        regions: Any
        if kind == "window":
            regions = [None] * self.size
            for index, rank in enumerate(ranks):
                regions[rank] = self._arena.region(at + index * region_bytes(nbytes), nbytes)
        elif at >= 0:
            regions = OneRegion(ranks[0], self._arena.region(at, nbytes))
        else:  # a plain tensor of the process: what it holds at the end is not known here
            unknown = memoryview(bytearray(nbytes))
            regions = OneRegion(ranks[0], Region.within(unknown, nbytes, zero=None, guards=False))
        self.know(number, kind, name, shape, DTYPES[dtype], regions)

    def know(
        self, number: int, kind: str, name: str, shape: tuple[int, ...], dtype: torch.dtype, regions: Any
    ) -> None:
        """Enter memory under its number."""
        self.known[number] = kind, name, tuple(shape), dtype
        self.regions[number] = regions

    def _on_call(
        self, teller: Teller, name: str, what: str, code: int, lasti: int, members: tuple[int, ...],
        lane: int,
    ) -> None:
        teller.calls.append((name, what, teller.code(code), lasti, members, lane))

    def _on_began(self, teller: Teller, worker: int, index: int) -> None:
        teller.began[worker].append(index)

    def _on_failure(
        self, teller: Teller, worker: int, error: bytes, text: str, code: int, lasti: int, operation: str
    ) -> None:
        teller.failure = Failure(
            teller.lanes[worker].index, teller.rank, len(self.events), pickle.loads(error), text,
            teller.code(code), lasti, operation,
        )

    def _on_end(self, teller: Teller, worker: int, state: str, result: bytes) -> None:
        lane = teller.lanes[worker]
        self.end_lane(lane, state)
        if state == "returned":
            lane.result = pickle.loads(result)
        elif state == "peer_lost" and lane.rank not in self.peers_lost:
            self.peers_lost.append(lane.rank)

    def end_lane(self, lane: Lane, state: str) -> None:
        """A lane has ended."""
        lane.state = state
        if lane.enabled:
            lane.enabled = False
            self._enabled_lanes -= 1
        if state != "unwound":
            lane.pending = ("ended",)
            lane.blocked_on = None

    def _on_seen(self, teller: Teller, seen: list[int]) -> None:
        for index, count in enumerate(seen):
            self.seen[index] += count

    def _on_touched(
        self, teller: Teller, number: int, at: int, stage: str, before: int, after: int,
        writes: bool, by: str, lane: int, code: int, lasti: int,  # noqa: FBT001
    ) -> None:
        index = teller.indexes[at] if at < len(teller.indexes) else len(self.events)
        if at and (by or stage == "before quiet"):  # seen after an event of its own, not at the next
            index = teller.indexes[at - 1] + 1
        self.touched.append(
            Touched(
                teller.numbers[number], index, stage, before, after, writes, by, lane, teller.code(code),
                lasti,
            )
        )

    # After the run ------------------------------------------------------------------------------

    def release(self) -> None:
        """Let go of the arena, whose memory is then free at once and not at some collection."""
        self._on.clear()
        self.regions.clear()
        self.tellers.clear()

    def keep_memory(self) -> SharedWindows:
        """Copies of all memory by number, as the run has left it; the arena is used again."""
        kept = SharedWindows(self.size)
        for number in range(max(self.known, default=-1) + 1):
            if number not in self.known:  # its process ended between taking it and saying so
                kept.add("buffer", "lost", (0,), torch.uint8, OneRegion(0, Region(0, zero=True)))
                continue
            copies: dict[int, Region] = {}

            def copied(region: Any, copies: dict[int, Region] = copies) -> Any:
                if region is None:
                    return None
                if id(region) not in copies:
                    copies[id(region)] = region.copied()
                return copies[id(region)]

            held = self.regions[number]
            regions: Any = (
                OneRegion(len(held) - 1, copied(held[len(held) - 1]))
                if isinstance(held, OneRegion) else [copied(region) for region in held]
            )
            kept.add(*self.known[number], regions)
        return kept


def _nothing() -> None:
    return None
