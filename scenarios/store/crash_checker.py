"""The checker `store` of what a crash left: the list that the scenario itself made while it looked.

Kinds: silent_corruption, uncommitted_visible, lost_block, torn_block (a visible block cannot be loaded),
residue, unexpected_error; see the scenario store.crash.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness import Finding, Run, likely

ORDER = (
    "silent_corruption", "uncommitted_visible", "torn_block", "lost_block", "unexpected_error", "residue",
)


class CrashChecker:
    """Reads the Stage that the scenario returned as `stage`."""

    name = "store"

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding of each kind, the worst first."""
        stage = run.observed.get("stage") if isinstance(run.observed, dict) else None
        if stage is None:
            return
        told = dict(reversed(stage.wrong))
        for kind in ORDER:
            if kind in told:
                crashed = stage.told and kind in ("lost_block", "torn_block")
                cause, remedy = likely(f"store/{kind}", "crashed" if crashed else "")
                yield Finding(
                    checker="store", kind=kind, rank=0, message=told[kind], evidence=stage.told,
                    cause=cause, remedy=remedy,
                )
