"""Mutants of the stages: marks taken off too early or never."""

from __future__ import annotations

from harness import Rank, Window, mutant
from systems.collectives import stages as twin


@mutant(of=twin.stage_to_clean, expects="deadlock/overwritten_signal", ranks=2)
def next_stage_cleaned(call: int) -> int:
    """The stage of the next call is cleaned, which a fast peer has perhaps filled already.

    Source: vLLM pull request 53000. Finding: deadlock/overwritten_signal, its mark is wiped. Smallest
    world: 2.
    """
    return (call + 1) % twin.STAGES


@mutant(of=twin.clean, expects="integrity/stale_value", ranks=2)
def stage_never_cleaned(rank: Rank, cells: Window, stage: int) -> None:
    """Marks are never taken off, so a stage that is used again is read at once.

    Source: vLLM pull request 53000, the reason for cleaning. Finding: integrity/stale_value. Smallest
    world: 2.
    """
