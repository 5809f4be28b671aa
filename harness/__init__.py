"""Rankfault's front door: what scenarios, systems, faults, mutants and tests use.

Its parts are imported on first use: the pytest plugin lives in this package, and a test session
without rank programs must not wait for torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import lowering
    from harness.checkers.durable import Durable
    from harness.checkers.linear_search import ILLEGAL, NEVER, Op
    from harness.checkers.linearizable import Linearizable
    from harness.checkup import Bench, Check, Doctor
    from harness.crash_states import Aftermath, CrashStates
    from harness.diagnosis.table import likely
    from harness.errors import PeerLost, RankfaultError, UsageError
    from harness.fabric.memory import Buffer, Window
    from harness.fabric.rank_disk import rank_disk
    from harness.fabric.rank_workers import RankClock, RankWorkers, rank_call
    from harness.fabric.real_outcome import RealOutcome
    from harness.fabric.real_ranks import run_real
    from harness.finding import Checker, Finding, Outcome, Verdict
    from harness.frontends.torch_distributed.testing import distributed_test
    from harness.host import World, is_window_or_tensor
    from harness.interpose import DeferAfter, Die, Drop, Operation, Raise, Strike, Twice
    from harness.plan import EVERY, Crash, Fault, Hold, Plan, Preempt, Visibility
    from harness.power_cut import PowerCut, SmallDisk
    from harness.rank import AtomicType, NotifyOp, Rank, WaitCmp
    from harness.record import Run, Site
    from harness.run import run
    from harness.scenario import Mutant, Scenario, mutant, scenario, values
    from harness.simulated_disk import SimulatedDisk
    from harness.strategy import plans, property
    from harness.subject import Answer, Crashed, Expired, Failed, Reply, Subject
    from harness.supervise import Limits

__all__ = [
    "EVERY",
    "ILLEGAL",
    "NEVER",
    "Aftermath",
    "Answer",
    "AtomicType",
    "Bench",
    "Buffer",
    "Check",
    "Checker",
    "Crash",
    "CrashStates",
    "Crashed",
    "DeferAfter",
    "Die",
    "Doctor",
    "Drop",
    "Durable",
    "Expired",
    "Failed",
    "Fault",
    "Finding",
    "Hold",
    "Limits",
    "Linearizable",
    "Mutant",
    "NotifyOp",
    "Op",
    "Operation",
    "Outcome",
    "PeerLost",
    "Plan",
    "PowerCut",
    "Preempt",
    "Raise",
    "Rank",
    "RankClock",
    "RankWorkers",
    "RankfaultError",
    "RealOutcome",
    "Reply",
    "Run",
    "Scenario",
    "SimulatedDisk",
    "Site",
    "SmallDisk",
    "Strike",
    "Subject",
    "Twice",
    "UsageError",
    "Verdict",
    "Visibility",
    "WaitCmp",
    "Window",
    "World",
    "distributed_test",
    "is_window_or_tensor",
    "likely",
    "lowering",
    "mutant",
    "plans",
    "property",
    "rank_call",
    "rank_disk",
    "run",
    "run_real",
    "scenario",
    "values",
]

_PARTS = {
    "checkers.durable": ("Durable",),
    "checkers.linear_search": ("ILLEGAL", "NEVER", "Op"),
    "checkers.linearizable": ("Linearizable",),
    "checkup": ("Bench", "Check", "Doctor"),
    "crash_states": ("Aftermath", "CrashStates"),
    "diagnosis.table": ("likely",),
    "errors": ("PeerLost", "RankfaultError", "UsageError"),
    "fabric.memory": ("Buffer", "Window"),
    "fabric.rank_disk": ("rank_disk",),
    "fabric.rank_workers": ("RankClock", "RankWorkers", "rank_call"),
    "fabric.real_outcome": ("RealOutcome",),
    "fabric.real_ranks": ("run_real",),
    "finding": ("Checker", "Finding", "Outcome", "Verdict"),
    "frontends.torch_distributed.testing": ("distributed_test",),
    "host": ("World", "is_window_or_tensor"),
    "interpose": ("DeferAfter", "Die", "Drop", "Operation", "Raise", "Strike", "Twice"),
    "plan": ("EVERY", "Crash", "Fault", "Hold", "Plan", "Preempt", "Visibility"),
    "power_cut": ("PowerCut", "SmallDisk"),
    "rank": ("AtomicType", "NotifyOp", "Rank", "WaitCmp"),
    "record": ("Run", "Site"),
    "run": ("run",),
    "scenario": ("Mutant", "Scenario", "mutant", "scenario", "values"),
    "simulated_disk": ("SimulatedDisk",),
    "strategy": ("plans", "property"),
    "subject": ("Answer", "Crashed", "Expired", "Failed", "Reply", "Subject"),
    "supervise": ("Limits",),
}
_HOME = {name: part for part, names in _PARTS.items() for name in names}


class _FrontDoor(ModuleType):
    """A module whose names `run` and `scenario` mean the functions, never the submodules."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOME and isinstance(value, ModuleType):
            return  # the import system binds each submodule to its package
        super().__setattr__(name, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "lowering":
                return importlib.import_module("harness.lowering")
            if name not in _HOME:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
            super().__setattr__(name, value)
            return value


sys.modules[__name__].__class__ = _FrontDoor
