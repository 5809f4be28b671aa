"""Rankfault's front door: what scenarios, systems, faults, mutants and tests use."""

from harness import lowering
from harness.errors import PeerLost, RankfaultError
from harness.fabric.memory import Buffer, Window
from harness.finding import Finding, Outcome, Verdict
from harness.host import World
from harness.interpose import DeferAfter, Die, Drop, Operation, Raise, Twice
from harness.plan import Fault, Hold, Plan, Preempt, Visibility
from harness.rank import AtomicType, NotifyOp, Rank, WaitCmp
from harness.run import run
from harness.scenario import Mutant, Scenario, mutant, scenario, values
from harness.strategy import plans, property

__all__ = [
    "AtomicType",
    "Buffer",
    "DeferAfter",
    "Die",
    "Drop",
    "Fault",
    "Finding",
    "Hold",
    "Mutant",
    "NotifyOp",
    "Operation",
    "Outcome",
    "PeerLost",
    "Plan",
    "Preempt",
    "Raise",
    "Rank",
    "RankfaultError",
    "Scenario",
    "Twice",
    "Verdict",
    "Visibility",
    "WaitCmp",
    "Window",
    "World",
    "lowering",
    "mutant",
    "plans",
    "property",
    "run",
    "scenario",
    "values",
]
