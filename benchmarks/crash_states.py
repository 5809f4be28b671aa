"""Crash states: how many a second, and whether any of them breaks a promise of the embedded store.

Counted apart: sets of effects that are compared with those before them (a state is told once), states
that are made into a disk, recoveries that are run and judged (open, look up and load all, dump, commit
and load all again, close), and crash states with their verdict, those whose disk and promise were judged
before among them. Seconds are those of the processor: the work is of one thread. The quick tier tries all
workloads of up to one call, with crashes of their recoveries, the full one all of up to three without.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from benchmarks import figure
from harness import CrashStates
from scenarios.store.crash import Params, recovered, worked, workloads
from scenarios.store.crash_exhaustion import exhausted

CALLS = ("dump a", "dump b", "commit true")
DURABILITIES = ("fsync", "flush", "none")
PROFILES = ("posix", "ext4", "nfs")
GOAL = 5_000


def _rates(rounds: int) -> list[dict[str, Any]]:
    """Each part of the work on one workload's states."""
    params = Params(calls=CALLS, durability="none")
    work = worked(params)
    spent = dict.fromkeys(("sets", "disks", "recoveries"), 0.0)
    counts = dict.fromkeys(spent, 0)
    for _ in range(rounds):
        started = time.process_time()
        states = CrashStates(work.disk.log)
        crashes = list(states)
        compared = time.process_time()
        disks = [states.disk(crash, direct_block=512) for crash in crashes]
        made = time.process_time()
        stages = [
            recovered(disk, work.promise(crash.at), params)
            for disk, crash in zip(disks[::4], crashes[::4], strict=True)
        ]
        ended = time.process_time()
        for name, count, seconds in (
            ("sets", states.tried, compared - started), ("disks", len(disks), made - compared),
            ("recoveries", len(stages), ended - made),
        ):  # fmt: skip
            spent[name] += seconds
            counts[name] += count
    rate = {name: round(counts[name] / spent[name]) for name in spent}
    return [
        figure("crash states compared", rate["sets"], "sets/s", f">= {GOAL}", rate["sets"] >= GOAL),
        figure("states made into disks", rate["disks"], "disks/s", f">= {GOAL}", rate["disks"] >= GOAL),
        figure("recoveries run and judged", rate["recoveries"], "recoveries/s", "", None),
    ]


def crash_states(*, full: bool) -> list[dict[str, Any]]:
    """The rates, then every workload under each durability and profile."""
    found = _rates(5 if full else 1)
    most = 3 if full else 1
    broken = sets = states = 0
    spent = 0.0
    for durability, profile in itertools.product(DURABILITIES, PROFILES):
        started = time.process_time()
        every = (
            Params(calls=calls, durability=durability, profile=profile) for calls in workloads(most)
        )
        done = exhausted(every, recoveries=not full, budget=1_024 if full else 16_384)
        seconds = time.process_time() - started
        name = f"{durability}, {profile}, {done.workloads} workloads"
        told = f"{done.tried} sets, {done.states} states, {done.judged} recoveries, {done.again} again"
        found.append(figure(f"{name}: {told}", round(seconds, 1), "s", "", None))
        found.append(
            figure(f"{name}: workloads cut by the budget", done.cut, f"of {done.workloads}", "", None)
        )
        broken += len(done.violations)
        sets += done.tried
        states += done.states + done.again
        spent += seconds
    return [
        *found,
        figure("sets tried, each with its verdict", round(sets / spent), "sets/s", "", None),
        figure("states that differ, each with its verdict", round(states / spent), "states/s", "", None),
        figure("crash states that break a promise", broken, "states", "0", not broken),
    ]
