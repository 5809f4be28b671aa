"""Every crash of many workloads of store.crash, without a world around each: for benchmarks and tests.

What a recovery makes of a disk depends on the disk, the durability and what was promised, and on nothing
else, so each such case is judged once, whatever workload, crash point or profile it came from. A finding
is a Params and a Crash, which a plan replays. Not here: shrinking (the hunt has that).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import xxhash

from harness import Crash, CrashStates, SimulatedDisk
from scenarios.store.crash import Params, Promise, Stage, recovered, worked

BUDGET = 16_384


class Violation(NamedTuple):
    """What is wrong after one crash."""

    params: Params
    crash: Crash
    kind: str
    text: str


@dataclass(slots=True)
class Exhausted:
    """Counts. tried: states made from effects and compared; states: those that differ within their
    workload; judged: recoveries that were run; again: crashes of a recovery. cut: workloads whose budget
    ended before their states did."""

    workloads: int = 0
    tried: int = 0
    states: int = 0
    judged: int = 0
    again: int = 0
    cut: int = 0
    violations: list[Violation] = field(default_factory=list)
    _known: dict[object, list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, params: Params, *, budget: int = BUDGET, recoveries: bool = False) -> None:
        """Every crash of one workload. recoveries: and of each one's recovery, at its simplest."""
        self.workloads += 1
        work = worked(params)
        states = CrashStates(work.disk.log, params.profile, budget=budget)
        for crash in states:
            disk = states.disk(crash, direct_block=work.disk.direct_block)
            stage = self._judged(disk, work.promise(crash.at), params, crash)
            if stage is not None and recoveries:
                self._again(stage, params, crash)
            self.states += 1
        self.tried += states.tried
        self.cut += not states.whole

    def _again(self, stage: Stage, params: Params, crash: Crash) -> None:
        log, base = stage.disk.log, stage.disk.tree.base
        states = CrashStates(log, params.profile, base)
        for again in states.simplest():
            disk = states.disk(again, direct_block=stage.disk.direct_block)
            told = Crash(crash.at, crash.keep, crash.torn, crash.zeros, again)
            self._judged(disk, stage.promise(again.at), params, told)
            self.again += 1
        self.tried += states.tried

    def _judged(
        self, disk: SimulatedDisk, promise: Promise, params: Params, crash: Crash
    ) -> Stage | None:
        """What the recovery made of the disk; None where that is known."""
        key = (params.durability, params.elements, promise, _print(disk))
        stage = None
        if key not in self._known:
            self.judged += 1
            stage = recovered(disk, promise, params)
            self._known[key] = stage.wrong
        self.violations += [Violation(params, crash, *wrong) for wrong in self._known[key]]
        return stage


def exhausted(
    every: Iterable[Params], *, budget: int = BUDGET, recoveries: bool = False
) -> Exhausted:
    """All of them."""
    found = Exhausted()
    for params in every:
        found.add(params, budget=budget, recoveries=recoveries)
    return found


def _print(disk: SimulatedDisk) -> tuple[tuple[str, bytes], ...]:
    """What tells two disks apart: paths and contents."""
    found: list[tuple[str, bytes]] = []
    waiting = [("", disk.tree.root)]
    while waiting:
        begin, node = waiting.pop()
        for name, one in node.entries.items():
            path = f"{begin}/{name}"
            if one.is_dir:
                found.append((path, b""))
                waiting.append((path, one))
            else:
                found.append((path, xxhash.xxh3_128_digest(one.data)))
    return tuple(sorted(found))
