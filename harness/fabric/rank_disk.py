"""A rank's view of a simulated disk: its operations are events of the lane that performs them.

Every disk operation is a scheduling point of whichever lane of the rank is running, is offered to the
plan's faults as the rank's, and dies with the rank. Slow operations sleep in virtual time: their effect
follows the sleep's event, not their own. An event's value is the path. An event is recorded before its
fault fires. Not modelled: races between disk operations (the races checker knows memory only).
"""

from __future__ import annotations

from sys import _getframe
from typing import TYPE_CHECKING, Any

from harness.errors import RankDied
from harness.fabric.frames import user_frame_of
from harness.fabric.rank_workers import EPOCH
from harness.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from harness.rank import Rank


def rank_disk(rank: Rank, disk: SimulatedDisk) -> SimulatedDisk:
    """`disk` as the process of `rank` sees it; all lanes of the rank may use what this returns.

    disk: made by the host program and dispatched to every rank. Without a clock of its own its file
    times are the run's virtual time, as RankClock shows it.
    """
    program: Any = rank  # a SimulatedRank: the fabric's own side of it is needed here
    simulation = program._sim
    if disk.tree.clock is None:
        disk.tree.clock = lambda: EPOCH + simulation.clock()

    def point(kind: str, path: str) -> None:
        lane = simulation.current
        if lane.dying:
            raise RankDied
        lane.pending = (kind,)
        simulation.point(lane)
        code, lasti = user_frame_of(_getframe(2))
        simulation.events.append((lane.index, kind, -1, lane.rank, 0, 0, path, -1, code, lasti))

    def died() -> None:
        for one in program._state.lanes:
            if one._lane is simulation.current:
                one._died()

    return disk.mounted(
        rank=rank.index, size=rank.size, interposer=program._faults, point=point,
        sleep=simulation.sleep, lane=lambda: int(simulation.current.worker), on_death=died,
    )
