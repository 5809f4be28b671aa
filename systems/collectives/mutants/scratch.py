"""Mutants of the scratch window: flags where another call's data may lie."""

from __future__ import annotations

from harness import mutant
from systems.collectives import scratch as twin


@mutant(of=twin.flags_begin, expects="deadlock/overwritten_signal", ranks=2)
def flags_move_with_the_size(size: int, n: int, longest: int) -> int:
    """The flags lie behind two messages of this call's size, where a longer one has its data.

    A rank that is one call ahead writes its row over a flag that a slow one still polls. Source: vLLM
    pull request 25892. Finding: deadlock/overwritten_signal. Smallest world: 2.
    """
    return 2 * size * n
