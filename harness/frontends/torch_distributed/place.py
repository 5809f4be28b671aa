"""Where a rank of a torch.distributed program stands: its lane, its surroundings, its user's line.

Everything that such a program does with its peers goes through here: a scheduling point, a work that
is put in flight, a wait. Around each of them the rank's surroundings are taken away and put back.

Threads of its program are lanes of the rank, too (rank_threads.py); a Place stands for whichever of them
has the turn.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from sys import _getframe
from types import CodeType, FrameType
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import c10d_logger
from torch.distributed import distributed_c10d as c10d

from harness.errors import PeerLost, WaitExpired
from harness.fabric.frames import PACKAGE, user_frame_in
from harness.fabric.lanes import POLL_OPERATIONS
from harness.fabric.tensors import TensorUse, overlap
from harness.fabric.works import Work
from harness.frontends.torch_distributed.calls import Call
from harness.frontends.torch_distributed.environment import Surroundings
from harness.record import Touched, place

T = TypeVar("T")
_CALLED = (c10d.__file__, c10d_logger.__file__)


class ConnectionLost(PeerLost, dist.DistBackendError):
    """What a rank that waits for a dead one gets: a RuntimeError, as from any backend."""

    def __init__(self, rank: int, what: str) -> None:
        RuntimeError.__init__(self, f"{what}: Connection closed by peer: rank {rank} has died")
        self.rank = rank


class Place:
    """One rank of the run. calls: its part in every collective and message, in order. waits: by number of
    a work, where it was waited for."""

    def __init__(self, rank: Any) -> None:
        self.index: int = rank.index
        self.sim = rank._sim
        self.several = 0  # threads that live beside the main one
        self._main = rank
        self._ranks: dict[Any, Any] = {}  # of threads: the rank as each of them sees it
        self.calls: list[Call] = rank._state.torch_calls
        self.waits: dict[int, tuple[CodeType | None, int]] = rank._state.torch_waits
        self.surroundings: Surroundings
        self.resumed: Callable[[], None] = lambda: None  # called when one of several lanes goes on
        self.outstanding: dict[int, Any] = {}  # works that nobody has waited for, kept alive
        self.storages: dict[int, tuple[Any, int]] = {}  # by address, while they live: their number
        self.kept: list[Any] = []
        self.futured: dict[int, Any] = {}  # those of them whose futures it has taken
        self.uses: list[TensorUse] = []  # its tensors in flight
        self._numbers = 0
        self._locks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._locks_seen = 0

    @property
    def rank(self) -> Any:
        """The rank, as the lane that has the turn sees it."""
        return self._ranks.get(self.sim.current, self._main) if self._ranks else self._main

    @property
    def lane(self) -> Any:
        """The one of its lanes that has the turn."""
        return self.rank._lane

    @property
    def thread(self) -> str:
        """The name of the thread that has the turn; "" for the main one."""
        return str(self.lane.thread)

    def joined_by(self, lane: Any) -> None:
        """A thread of the program begins."""
        main = self._main
        made = type(main)(
            self.index, main.size, main._faults, self.sim, main._windows, lane.index, main._state
        )
        made._lane = lane
        self._ranks[lane] = made
        self.several += 1

    def ends(self, lane: Any) -> None:
        """A thread of the program has returned: what a fault has put off is done now."""
        made = self._ranks[lane]
        if made._faults and hasattr(made._faults, "at_end"):
            made._faults.at_end(self.index, made.lane)

    def number_of(self, lock: Any) -> int:
        """A lock's number in the rank's events: in the order in which locks are contended for."""
        number = self._locks.get(lock)
        if number is None:
            number = self._locks[lock] = self._locks_seen
            self._locks_seen += 1
        return number

    def touching(
        self, tensor: Any, by: str, code: CodeType | None, lasti: int, *, writes: bool
    ) -> None:
        """The program is about to read or write a tensor: tell of what is in flight there."""
        for use in self.uses:
            if (writes or use.fills) and overlap(tensor, use.region.data):
                version = use.version
                self.sim.touched.append(Touched(
                    use.number, len(self.sim.events), f"before {use.stage}", version, version,
                    writes=writes, by=by, lane=self.lane.index, code=code, lasti=lasti,
                ))

    def next_number(self) -> int:
        """A number that no other storage, or future of an executor, has."""
        self._numbers += 1
        return self._numbers

    def follow_sleep(self) -> None:
        """time.sleep is a scheduling point of the engine's own: leave the surroundings around it, too."""
        ambient = self.sim.ambient
        if not getattr(ambient.sleep, "follows", False):
            ambient.sleep = _following(ambient.sleep)
        ambient.sleep.places[self.index] = self

    def end(self) -> None:
        """The program has ended; what it has not waited for stays in the record."""
        for work in self.outstanding.values():
            work.abandon()
        self.outstanding.clear()
        self.futured.clear()
        self.kept.clear()

    def here(self) -> tuple[FrameType | None, CodeType | None, int]:
        """The user's frame that is calling, its code and the instruction."""
        frame = user_frame_in(_getframe(1))
        if frame is None and self.thread:
            frame = _library_frame(_getframe(1))
        if frame is None:
            return None, None, -1
        return frame, frame.f_code, frame.f_lasti

    def called(self, what: str, code: CodeType | None, lasti: int) -> str:
        """`rank 2: all_reduce at train.py:12 in main`, the beginning of every error."""
        return f"rank {self.index}: {what} at {place(code, lasti)}"

    def offer(self, kind: str, body: Callable[..., Any], code: CodeType | None, lasti: int) -> Any:
        """Perform an operation as the plan's faults want it."""
        rank = self.rank
        rank._code, rank._lasti = code, lasti
        return rank._offer(kind, body) if rank._faults else body()

    def outside(self, deed: Callable[..., T], *args: Any) -> T:
        """Do something in which other ranks may have their turn."""
        self.surroundings.leave()
        try:
            return deed(*args)
        finally:
            self.surroundings.enter()
            if self.several:
                self.resumed()

    def point(self, *pending: Any) -> None:
        """A scheduling point; returns when this rank is the owner that moves."""
        self.lane.pending = pending
        self.outside(self.sim.point, self.lane)

    def event(self, kind: str, peer: int, nbytes: int, value: bytes | None, number: int,
              code: CodeType | None, lasti: int) -> None:
        """The rank's own event, which follows its scheduling point."""
        self.sim.events.append(
            (self.lane.index, kind, -1, peer, 0, nbytes, value, number, code, lasti)
        )

    def await_work(self, op: Work, seconds: float | None, what: Callable[[], str]) -> bool:
        """Whether the work was done within so many virtual seconds (None: however long).

        Raises ConnectionLost when a rank has died.
        """
        try:
            self.outside(self.sim.await_work, self.lane, op, seconds)
        except WaitExpired:
            self.event("expired", self.index, 0, None, op.number, op.code, op.lasti)
            if self.sim.dead:  # whose connections close at once, before any limit
                raise ConnectionLost(self.sim.dead[0], what()) from None
            return False
        except PeerLost as error:
            raise ConnectionLost(error.rank, what()) from None
        return True

    def reads(self) -> None:
        """Before the scheduling point of an operation that only looks: who looks for ever steps back."""
        lane = self.lane
        if lane.reads >= POLL_OPERATIONS:
            self.sim.polls(lane)
        lane.reads += 1

    def poll(self, op: Work, code: CodeType | None, lasti: int) -> bool:
        """Whether the work is done, asked at a scheduling point; who asks for ever lets others move."""
        self.reads()
        self.point("is_completed", -1, self.index, op.number, op.number)
        self.event("is_completed", self.index, 0, bytes([op.done]), op.number, code, lasti)
        return op.done


def _library_frame(frame: FrameType | None) -> FrameType | None:
    """Where a library's own thread makes a call: the frame that calls torch.distributed."""
    while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, *_CALLED)):
        frame = frame.f_back
    return frame


class _Following:
    """The engine's sleep, for whichever rank calls it."""

    follows = True

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self.places: dict[int, Place] = {}

    def __call__(self, seconds: float) -> None:
        for one in self.places.values():
            if one.sim.current.rank == one.index and one.surroundings.in_force:
                one.outside(self._sleep, seconds)
                return
        self._sleep(seconds)


_following = _Following
