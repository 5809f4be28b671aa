"""A device whose cores are all held by tasks that wait, while others are ready and have none.

Where one of those would notify what is waited for, on this device or through another one, nobody goes on:
a task that waits holds its core. Not modelled: whether they would.
"""

from __future__ import annotations

from collections import Counter

from harness.checkers.failures import stuck_at
from harness.checkers.wording import blocked_site, finding
from harness.finding import Finding
from harness.record import Run, Starved, place, site_of


def holders(run: Run) -> list[int]:
    """The blocked lanes that hold a core of a device that has tasks without one."""
    held = {(one.rank, lane) for one in run.starved for lane, _ in one.holders}
    return [blocked.lane for blocked in run.blocked if run.lanes[blocked.lane] in held]


def starvation(run: Run) -> Finding:
    """The finding: who holds the cores, what each waits for, what is ready without one."""
    first = run.starved[0]
    waiting = set(holders(run))
    lines = []
    for blocked in run.blocked:
        what = "holds a core, " if blocked.lane in waiting else ""
        lines.append(f"{run.lane_name(blocked.lane)} {what}{stuck_at(run, blocked)}")
    lines += [f"{_name(one)}: ready, without a core: {_ready(one)}" for one in run.starved]
    names = Counter(name for _, name in first.holders)
    held = ", ".join(
        repr(name) if count == 1 else f"{name!r} {count} times" for name, count in names.items()
    )
    cores = "its core is held by a task that waits" if first.cores == 1 else (
        f"its {first.cores} cores are held by tasks that wait"
    )
    return finding(
        "deadlock", "core_starvation", first.rank,
        f"{_name(first)}: {cores} ({held}); never given a core: {_ready(first)}",
        sites=[
            *(blocked_site(blocked) for blocked in run.blocked if blocked.lane in waiting),
            *(site_of(code, lasti, "task") for one in run.starved for _, code, lasti in one.ready),
        ],
        evidence=lines,
    )


def _name(one: Starved) -> str:
    return f"rank {one.rank}"


def _ready(one: Starved) -> str:
    return ", ".join(f"{name!r} ({place(code, lasti)})" for name, code, lasti in one.ready)
