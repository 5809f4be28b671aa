"""Mutant of the admission: a rank leaves the loop for a reason of its own."""

from __future__ import annotations

from harness import mutant
from systems.collectives import admission as twin


@mutant(of=twin.admits, expects="matching/missing_call", ranks=2)
def own_room_decides(own: int, agreed: int) -> bool:
    """A rank stops when its own room is used up, while others call the next request's collective.

    Source: SGLang issue 30760. Finding: matching/missing_call. Smallest world: 2.
    """
    return own > 0
