"""Timing faults: what the world may do to when things happen. Environment, all of them.

They are friendly names. Before a run each is lowered to the Holds and Preempts that it stands for,
in the program at hand, and only those are saved. `nth` counts the rank's operations of the kind in
the default run.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from harness import Fault, Operation, Plan, Scenario, lowering

PUTS = frozenset(("put", "put_nbi", "remote_store", "put_signal"))
NOTIFIES = frozenset(("notify", "put_signal"))


class _Timing(Fault, frozen=True, forbid_unknown_fields=True, tag="timing"):
    """A fault that is lowered; it rewrites nothing."""

    family: ClassVar[Literal["environment", "bug"]] = "environment"
    everywhere: ClassVar[bool] = False
    lowers: ClassVar[bool] = True

    def matches(self, op: Operation) -> bool:
        """Any operation of a rank."""
        return op.rank >= 0 and op.kind not in ("dispatch", "bind")

    def rewrite(self, op: Operation) -> Any:
        """Nothing is rewritten."""
        return op

    def without(self, plan: Plan) -> Plan:
        """The plan without this fault."""
        return msgspec.structs.replace(
            plan, faults=tuple(fault for fault in plan.faults if fault is not self)
        )


class LatePut(_Timing, frozen=True, forbid_unknown_fields=True, tag="late_put"):
    """A put arrives late: after `until` further events, or as late as the rules allow (0)."""

    until: lowering.Events = 0

    def matches(self, op: Operation) -> bool:
        """Puts of every form."""
        return op.kind in PUTS

    def lower(self, plan: Plan, scenario: Scenario) -> Plan:
        """A Hold of the operation."""
        kinds = ("put", "put_nbi", "remote_store", "put_signal")
        return lowering.held(self.without(plan), scenario, kinds, self.rank, self.nth, self.until)


class LateNotify(_Timing, frozen=True, forbid_unknown_fields=True, tag="late_notify"):
    """A notify arrives late: after `until` further events, or as late as the rules allow (0)."""

    until: lowering.Events = 0

    def matches(self, op: Operation) -> bool:
        """Notifies and the signals of put_signal."""
        return op.kind in NOTIFIES

    def lower(self, plan: Plan, scenario: Scenario) -> Plan:
        """A Hold of the operation."""
        kinds = ("notify", "signal")
        return lowering.held(self.without(plan), scenario, kinds, self.rank, self.nth, self.until)


class SlowRank(_Timing, frozen=True, forbid_unknown_fields=True, tag="slow_rank"):
    """A rank is slow: it moves only when no other rank can. `nth` means nothing here."""

    reorders: ClassVar[bool] = True

    def lower(self, plan: Plan, scenario: Scenario) -> Plan:
        """The Preempts that keep the rank behind."""
        return lowering.explored(self.without(plan), scenario, lowering.SlowRank(self.rank))


class Pause(_Timing, frozen=True, forbid_unknown_fields=True, tag="pause"):
    """A rank pauses before its nth event until no other rank can move."""

    reorders: ClassVar[bool] = True

    def lower(self, plan: Plan, scenario: Scenario) -> Plan:
        """The Preempts that make the pause."""
        chooser = lowering.PausedRank(self.rank, self.nth)
        return lowering.explored(self.without(plan), scenario, chooser)


class Preemption(_Timing, frozen=True, forbid_unknown_fields=True, tag="preemption"):
    """A rank is preempted once before its nth event: the lowest other rank goes on instead."""

    reorders: ClassVar[bool] = True

    def lower(self, plan: Plan, scenario: Scenario) -> Plan:
        """One Preempt."""
        chooser = lowering.PreemptedRank(self.rank, self.nth)
        return lowering.explored(self.without(plan), scenario, chooser)


__all__ = ["LateNotify", "LatePut", "Pause", "Preemption", "SlowRank"]
