"""Rankfault's front door: what scenarios, systems, mutants and tests use."""

from harness.errors import PeerLost, RankfaultError
from harness.host import World
from harness.plan import Fault, Hold, Plan, Preempt, Visibility
from harness.rank import AtomicType, NotifyOp, Rank, WaitCmp
from harness.run import run
from harness.scenario import Mutant, Scenario, mutant, scenario, values
from harness.fabric.memory import Buffer, Window

__all__ = [
    "AtomicType", "Buffer", "Fault", "Hold", "Mutant", "NotifyOp", "PeerLost", "Plan", "Preempt",
    "Rank", "RankfaultError", "Scenario", "Visibility", "WaitCmp", "Window", "World", "mutant", "run",
    "scenario", "values",
]
