"""The lanes of a simulated rank as a process's workers: an executor, its events, and the clocks.

For systems that receive their workers and clock (a KV store's ports), as rank_disk is for their files. A
job is announced in cell 0 of the rank's own part of a window, an event is set in a cell of its own: so
what waits for what is seen by every checker, and a schedule may start a job, or wake who waits, late.
An event is set for everybody when `set` returns.

Not modelled: workers that steal the processor from each other within a job's plain Python; an event
that is reset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from sys import _getframe
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import WrongArgument
from harness.fabric.frames import user_frame_of
from harness.fabric.memory import Window
from harness.rank import NotifyOp, WaitCmp

if TYPE_CHECKING:
    from harness.rank import Rank

T = TypeVar("T")
EPOCH = 1_700_000_000.0  # seconds: what a run's wall clock shows at its start
JOBS = 0  # the cell that counts jobs; the others are events


class RankWorkers:
    """The workers of one rank: whichever of its lanes calls `serve` becomes one.

    cells: the rank's own part of an int32 window of 1 + as many cells as events are made.
    """

    def __init__(self, rank: Rank, cells: Window) -> None:
        self._rank = rank
        self._cells = cells
        self._jobs: deque[Callable[[], None]] = deque()
        self._announced = 0
        self._closed = False
        self._made = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` on some lane that serves. Raises RuntimeError when these workers are closed."""
        if self._closed:
            raise RuntimeError("these workers are closed")
        self._jobs.append(job)
        self._announce()

    def close(self) -> None:
        """Take no more; lanes that serve return when what was submitted is done."""
        if not self._closed:
            self._closed = True
            self._announce()

    def _announce(self) -> None:
        self._announced += 1
        self.notify(JOBS)

    def serve(self) -> None:
        """Perform jobs until the workers are closed and no job is left."""
        while True:
            while self._jobs:
                job = self._jobs.popleft()
                job()
                del job  # it holds what it works on
            if self._closed:
                return
            self.wait(JOBS, self._announced + 1, None)

    def event(self) -> RankEvent:
        """Something to wait for."""
        self._made += 1
        if self._made >= self._cells.numel:
            raise WrongArgument(f"{self._cells!r} has room for {self._cells.numel - 1} events")
        return RankEvent(self, self._made)

    # The operations, as the lane that runs performs them ----------------------------------------------

    def _do(self, kind: str, body: str, **args: Any) -> Any:
        program = _lane(self._rank)
        program._code, program._lasti = user_frame_of(_getframe(2))
        method = getattr(program, body)
        return program._offer(kind, method, **args) if program._faults else method(**args)

    def notify(self, at: int) -> None:
        """Add one to a cell; on its way when this returns."""
        self._do(
            "notify", "_notify", cell=self._cells, peer=self._rank.index, at=at, value=1,
            op=NotifyOp.AtomicAdd,
        )

    def quiet(self) -> None:
        """Return when the lane's own notifies have arrived."""
        self._do("quiet", "_quiet")

    def wait(self, at: int, value: int, timeout: float | None) -> bool:
        """Wait until a cell is at least `value`; whether that came within `timeout` seconds."""
        came = self._do(
            "wait", "_wait", cell=self._cells, at=at, value=value, cmp=WaitCmp.Ge, timeout=timeout
        )
        return came is not False

    def value(self, at: int) -> int:
        """What a cell holds."""
        return int(self._do("load", "_load", src=self._cells, at=at, shape=1))


class RankEvent:
    """Set once; waited for by any lane of the rank."""

    def __init__(self, workers: RankWorkers, at: int) -> None:
        self._workers = workers
        self._at = at

    def set(self) -> None:
        """Let every waiter go; when this returns, everybody sees it."""
        self._workers.notify(self._at)
        self._workers.quiet()

    def wait(self, timeout: float | None) -> bool:
        """Wait until set, `timeout` virtual seconds at most; whether it is set."""
        return self._workers.wait(self._at, 1, timeout)

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._workers.value(self._at) > 0


class RankClock:
    """The clocks of one rank's process; a fault may make its wall clock jump (`seconds`)."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._jumped = 0.0

    def now(self) -> float:
        """Virtual seconds since the run began; monotonic."""
        return float(_lane(self._rank)._sim.clock())

    def events(self) -> int:
        """How many events the run has had: where in its record "now" is."""
        return len(_lane(self._rank)._events)

    def time(self) -> float:
        """Seconds since the epoch, as this process's wall clock shows them."""
        program = _lane(self._rank)

        def read(seconds: float = 0.0) -> float:
            self._jumped += seconds
            return EPOCH + self.now() + self._jumped

        return float(program._offer("clock_time", read) if program._faults else read())


def rank_call(
    rank: Rank, kind: str, body: Callable[..., T], what: str = "", *, frame: FrameType | None = None,
    **args: Any,
) -> T:
    """`body(**args)` as an operation of the rank, for calls of a system that is no part of the harness.

    It is a scheduling point, an event `kind` whose value is `what`, and is offered to the plan's faults
    with its arguments by name. A fault may not drop it. frame: where the event belongs; by default the
    caller's.
    """
    program = _lane(rank)
    program._code, program._lasti = user_frame_of(frame or _getframe(1))
    lane = program._lane
    lane.pending = (kind,)
    program._sim.point(lane)
    program._event(kind, -1, rank.index, 0, 0, what)
    if not program._faults:
        return body(**args)
    result: T = program._offer(kind, body, **args)
    return result


def _lane(rank: Rank) -> Any:
    """The rank as the lane that runs now sees it."""
    program: Any = rank  # a SimulatedRank
    return program._state.lanes[program._sim.current.worker]


__all__ = ["EPOCH", "RankClock", "RankEvent", "RankWorkers", "rank_call"]
