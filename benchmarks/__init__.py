"""Benchmarks: figures as ratios measured in one run, each against a named peer or a physical limit.

`run(names, full)` measures and returns a list of objects name, value, unit, goal, met. Not part of the
installed package: they live in the repository. Results as measured stand in RESULTS.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

NAMES = (
    "events", "hypothesis", "allreduce", "flat", "races", "detection", "false_alarms", "shrinking",
    "replay", "store_ratios", "worlds", "kills", "confirmed", "crash_states", "linearizable",
    "torch_programs", "torch_worlds", "pypto_items", "pypto_hunt", "pypto_speed",
)

_MODULES = {
    "events": "events", "hypothesis": "events", "allreduce": "events", "flat": "events",
    "races": "races", "detection": "detection", "false_alarms": "false_alarms", "shrinking": "shrinking",
    "replay": "replay", "store_ratios": "store", "worlds": "processes", "kills": "processes",
    "confirmed": "processes",
    "crash_states": "crash_states", "linearizable": "linearizable",
    "torch_programs": "torch_front_end", "torch_worlds": "torch_front_end",
    "pypto_items": "pypto", "pypto_hunt": "pypto", "pypto_speed": "pypto",
}


def figure(
    name: str, value: float | str, unit: str, goal: str, met: bool | None  # noqa: FBT001
) -> dict[str, Any]:
    """One measured figure; met is None where there is no goal."""
    return {"name": name, "value": value, "unit": unit, "goal": goal, "met": met}


def run(
    names: Sequence[str] = (), full: bool = False  # noqa: FBT001, FBT002
) -> list[dict[str, Any]]:
    """Measure the named benchmarks (all by default); full: at the size the goals are stated for."""
    found: list[dict[str, Any]] = []
    for name in names or NAMES:
        module = importlib.import_module(f"benchmarks.{_MODULES[name]}")
        found.extend(getattr(module, name)(full=full))
    return found
