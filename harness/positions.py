"""Where the run in flight stands: its plan and each rank's position, for when a time limit strikes.

It may be asked from a signal handler inside a rank program, or from another thread while the run
goes on; it reads and changes nothing. A rank's line is the innermost one outside this package. Not
told: positions on real processes, whose supervisor has their stacks.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from harness.fabric.carrier import running
from harness.fabric.simulated import Lane, Simulation
from harness.plan import encode
from harness.record import place
from harness.run import in_flight

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_WATCHERS = ("pytest_timeout.py", "threading.py", "signal.py")


def standstill() -> list[str]:
    """Lines that tell the plan in flight and where every rank is; none when nothing runs."""
    plan = in_flight()
    if plan is None:
        return []
    lines = [f"plan in flight: {encode(plan).decode()}"]
    now = running()
    if now is None:
        return [*lines, "no rank has started: the host program is running, or has ended"]
    simulation, thread = now
    lines.append(f"after {len(simulation.events)} events:")
    return lines + [_position(lane, simulation, thread) for lane in simulation.lanes]


def _position(lane: Lane, simulation: Simulation, thread: int) -> str:
    several = lane.worker or any(
        other.worker and other.rank == lane.rank for other in simulation.lanes
    )
    who = f"rank {lane.rank} lane {lane.worker}" if several else f"rank {lane.rank}"
    if lane.state != "running":
        return f"  {who}: {'not started' if lane.state == 'new' else lane.state}"
    current = lane is simulation.current
    frame = sys._current_frames().get(thread) if current else lane.carrier.greenlet.gr_frame
    where = _user_line(frame)
    if current:
        return f"  {who}: is running at {where}"
    verb = "is about to perform" if lane.enabled else "is blocked in"
    return f"  {who}: {verb} {_operation(lane.pending)} at {where}"


def _operation(pending: tuple[Any, ...]) -> str:
    """A lane's pending operation in words."""
    kind = str(pending[0])
    if len(pending) < 5 or pending[1] < 0:
        return kind
    window, peer, lo, hi = pending[1:5]
    return f"{kind} on window {window}, peer {peer}, bytes {lo}..{hi}"


def _user_line(frame: FrameType | None) -> str:
    """The innermost line that is neither the harness's nor of what watches it."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_PACKAGE) and os.path.basename(path) not in _WATCHERS:
            return place(frame.f_code, frame.f_lasti)
        frame = frame.f_back
    return "an unknown line"
