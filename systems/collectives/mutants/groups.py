"""Mutants of the overlapping groups: signals and numbers of one group used in another."""

from __future__ import annotations

from harness import mutant
from systems.collectives import groups as twin
from systems.collectives.groups import Members


@mutant(of=twin.slot, expects="integrity/unwritten_memory", ranks=3)
def groups_share_a_slot(group: int, row: int, place: int, size: int) -> int:
    """A slot goes by the place in the group only, so the rank in both hears one for the other.

    Source: PyTorch issue 192581. Finding: integrity/unwritten_memory, a row is read before it has come.
    Smallest world: 3.
    """
    return row * size + place


@mutant(of=twin.peer_at, expects="deadlock/missing_notify", ranks=3)
def place_for_number(members: Members, place: int) -> int:
    """A member's place in its group is taken for its number in the world.

    Source: pypto.md 5.4, pattern 16. Finding: deadlock/missing_notify, a member hears of nobody.
    Smallest world: 3.
    """
    return place
