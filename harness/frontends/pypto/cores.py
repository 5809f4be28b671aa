"""A device's cores: the tasks of an orchestration, run as cores and edges allow.

The rank's first lane runs chip orchestration; each other lane carries one task at a time. A task begins
when the tasks it depends on have ended and a core is free, first come, first served; it holds its core
until its body returns, whatever the body waits for. A task that has registered deferred waits gives its
core back then and ends when they hold; so there are more lanes than cores.

    cell LANE              how often a lane was given a task: who is given one knows what the giver knew
    cell LANES + NUMBER    how many blocks of a task have ended: whoever waits for it knows what they did

So a task knows of another only by an edge, as every checker sees it, or by having followed it in the same
lane, which happens when all lanes have been used.

Not modelled: the kinds of cores (every task takes one), early starts of tasks whose predecessors are
still running, the limits of the scheduler's own tables but for that of deferred waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from harness.errors import PldRuleError
from harness.frontends.pypto.annotations import bound, symbols_now
from harness.frontends.pypto.dfx import note
from harness.frontends.pypto.enums import Level
from harness.frontends.pypto.operate import TASK, Task, current, publish
from harness.frontends.pypto.predicates import Gate
from harness.frontends.pypto.values import View
from harness.frontends.pypto.written import Written
from harness.rank import NotifyOp, WaitCmp
from harness.record import Starved

if TYPE_CHECKING:
    from harness.fabric.memory import Window
    from harness.fabric.simulated_rank import SimulatedRank

LANES = 64  # the most that a rank may have: harness/host.py
CORES = 16  # the vector cores of PyPTO's simulator of an A2/A3 chip
JOBS_MAX = 4096
CELLS = LANES + JOBS_MAX
CONDITIONS_MAX = 64
ASK = -1  # in place of a block: ask the task's gate


class Job:
    """A task. body: called with a block's number. blocks: how often it is run, each on a core of its own.

    together: its blocks begin only when there is a core for each. after: the tasks that end before it
    begins. at: the user's line. gate: asked once those have ended; where it does not hold, the task is
    skipped. results: what its first block returned.
    """

    __slots__ = (
        "after", "at", "blocks", "body", "conditions", "done", "followers", "gate", "handed", "left",
        "missing", "name", "number", "results", "symbols", "together",
    )

    def __init__(
        self, name: str, body: Callable[[int], Any], after: Sequence[Job],
        at: tuple[CodeType | None, int], *, blocks: int = 1, together: bool = False,
        gate: Gate | None = None,
    ) -> None:
        self.number = -1
        self.name = name
        self.body = body
        self.after = list(dict.fromkeys(after))
        self.at = at
        self.blocks = self.left = blocks
        self.together = together
        self.gate = gate
        self.symbols = symbols_now()
        self.handed = 0
        self.missing = 0
        self.followers: list[Job] = []
        self.conditions: list[tuple[View, int, tuple[CodeType | None, int]]] = []
        self.done = False
        self.results: Any = None

    def __repr__(self) -> str:
        return f"task {self.number} ({self.name})"

    def follows(self, other: Job) -> bool:
        """Whether an edge, or several in a row, puts it behind `other`."""
        return any(one is other or one.follows(other) for one in self.after)


class Place:
    """Where code of a device runs: its cores; the task and which of its blocks; None in orchestration.

    lane: which of the two of a `split_aiv` region.
    """

    __slots__ = ("block", "cores", "job", "lane", "manual")

    def __init__(self, cores: Cores, job: Job | None = None, block: int = 0, lane: int = 0) -> None:
        self.cores = cores
        self.job = job
        self.block = block
        self.lane = lane
        self.manual = 0  # how many manual scopes the orchestration is in

    def settle(self, view: View) -> None:
        """Orchestration that reads memory waits for the tasks that write it."""
        if self.job is None:
            self.cores.settle(view)


class Cores:
    """The cores of one device in one run. size: how many."""

    def __init__(self, size: int = CORES) -> None:
        self.size = size
        self.free = size
        self.jobs: list[Job] = []
        self.cells: Window
        self._joined = 0
        self._ready: deque[Job] = deque()
        self._given: list[deque[tuple[Job, int]]] = [deque() for _ in range(LANES)]
        self._starts = [0] * LANES
        self._idle = deque(range(1, LANES))
        self._held: dict[int, Job] = {}  # by lane, what holds a core
        self.written = Written[Job]()

    # Orchestration ----------------------------------------------------------------------------------

    def begin(self, task: Task, cells: Window) -> None:
        """The rank's first lane has begun."""
        self.cells = cells
        task.place = Place(self)
        task.rank._sim.starved.append(self.starved)

    def submit(self, job: Job) -> Job:
        """Run a task as soon as its edges and the cores allow. Raises PldRuleError (`too_many_tasks`)."""
        self._number(job)
        for before in job.after:
            if not before.done:
                before.followers.append(job)
                job.missing += 1
        if not job.missing:
            self._due(job)
        return job

    def _number(self, job: Job) -> None:
        if len(self.jobs) >= JOBS_MAX:
            raise PldRuleError("too_many_tasks", f"more than {JOBS_MAX} tasks of one device in one call")
        job.number = len(self.jobs)
        self.jobs.append(job)
        deps = tuple(before.number + 1 for before in job.after)
        note(current().rank, "submit", job.number + 1, name=job.name, deps=deps)

    def settle(self, view: View) -> None:
        """Wait for the tasks that write `view`."""
        for job in self.written.before([(view, True, False)]):
            self.await_job(job)

    def await_job(self, job: Job) -> None:
        """Wait until a task has ended, and know what it did."""
        self._wait(LANES + job.number, job.blocks, job.at)

    def finish(self) -> None:
        """The end of a chip's orchestration: all its tasks have ended."""
        for job in self.jobs[self._joined :]:
            self.await_job(job)
        self._joined = len(self.jobs)
        self.written.clear()

    # Cores ------------------------------------------------------------------------------------------

    def serve(self, task: Task, cells: Window) -> None:
        """A lane's life: one task after the other."""
        self.cells = cells
        rank = task.rank
        token = TASK.set(task)
        try:
            while True:
                job, block = self._given[rank.lane].popleft()
                rank._code, rank._lasti = job.at
                rank._event("task", -1, rank.index, job.number, block, job.name)
                self._run(task, job, block)
                while not self._given[rank.lane]:
                    self._rest(rank)
        finally:
            TASK.reset(token)

    def _rest(self, rank: SimulatedRank) -> None:
        lane = rank._lane
        lane.pending = ("idle",)
        rank._sim.block(lane, ("idle", None, -1))
        rank._sim.point(lane)
        lane.blocked_on = None

    def _run(self, task: Task, job: Job, block: int) -> None:
        rank = task.rank
        task.place = Place(self, job, block)
        task.level = Level.CORE_GROUP
        self._wait(rank.lane, self._starts[rank.lane], job.at)
        for before in job.after:
            self.await_job(before)
        if block == ASK:
            self._asked(rank, job)
            task.place = None
            return
        note(rank, "start", job.number + 1, lane=rank.lane)
        with bound(job.symbols):
            found = job.body(block)
        publish()
        if block == 0:
            job.results = found
        last = job.left == 1
        job.left -= 1
        deferred = last and bool(job.conditions)
        if deferred:
            self._release(rank.lane)
            self._deferred(job)
        self._ended(rank.lane, job, last=last, deferred=deferred)
        task.place = None

    def _asked(self, rank: SimulatedRank, job: Job) -> None:
        """What its gate says of a task: it is ready, or it has ended without having begun. No core is
        held meanwhile."""
        rank._code, rank._lasti = job.at
        assert job.gate is not None
        skipped = not job.gate.holds()
        job.gate = None
        self._idle.append(rank.lane)
        if skipped:
            job.results = {}
            self._notify(LANES + job.number, job.at, job.blocks)
            self._over(job)
        else:
            self._due(job)

    def _ended(self, lane: int, job: Job, *, last: bool, deferred: bool) -> None:
        self._notify(LANES + job.number, job.at)
        self._idle.append(lane)
        if last:
            self._over(job)
        if deferred:
            self._hand_out()
        else:
            self._release(lane)

    def _over(self, job: Job) -> None:
        """A task has ended."""
        note(current().rank, "end", job.number + 1)
        job.done = True
        for follower in job.followers:
            follower.missing -= 1
            if not follower.missing:
                self._due(follower)
        job.followers.clear()
        job.body = _ended  # what it captured may know the job

    def _release(self, lane: int) -> None:
        """Give a core back."""
        if self._held.pop(lane, None) is not None:
            self.free += 1
        self._hand_out()

    def _deferred(self, job: Job) -> None:
        """Wait for what a task has registered; its core is free meanwhile."""
        rank = current().rank
        for cell, value, at in job.conditions:
            rank._code, rank._lasti = at
            (start, _), = cell.runs()
            args: dict[str, Any] = {
                "cell": cell.handle, "at": start, "value": value, "cmp": WaitCmp.Ge, "timeout": None
            }
            if rank._faults:
                rank._offer("wait", rank._wait, **args)
            else:
                rank._wait(**args)

    def fork(self, job: Job) -> Job:
        """Run a task beside the one that is running, on the other vector core of its group."""
        self._number(job)
        job.handed = 1
        self._give(self._lane_for(job), job, 0)
        return job

    # Handing out ------------------------------------------------------------------------------------

    def _due(self, job: Job) -> None:
        """What a task depends on has ended."""
        if job.gate is not None:
            self._give(self._lane_for(job), job, ASK)
            return
        self._ready.append(job)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._ready and self.free >= (self._ready[0].blocks if self._ready[0].together else 1):
            job = self._ready[0]
            block = job.handed
            job.handed += 1
            if job.handed == job.blocks:
                self._ready.popleft()
            lane = self._lane_for(job)
            self.free -= 1
            self._held[lane] = job
            self._give(lane, job, block)

    def _lane_for(self, job: Job) -> int:
        if not self._idle:
            raise PldRuleError(
                "too_many_deferred", f"{job!r}: {LANES - 1} tasks run or wait on this device already"
            )
        return self._idle.popleft()

    def _give(self, lane: int, job: Job, block: int) -> None:
        self._given[lane].append((job, block))
        self._starts[lane] += 1
        self._notify(lane, job.at)
        if self._given[lane]:  # it may have found the task by itself meanwhile
            program = current().rank._state.lanes[lane]
            program._sim.rouse(program._lane)

    def _notify(self, cell: int, at: tuple[CodeType | None, int], amount: int = 1) -> None:
        rank = current().rank
        rank._code, rank._lasti = at
        rank._notify(self.cells, rank.index, cell, amount, NotifyOp.AtomicAdd)

    def _wait(self, cell: int, value: int, at: tuple[CodeType | None, int]) -> None:
        rank = current().rank
        rank._code, rank._lasti = at
        rank._wait(self.cells, cell, value, WaitCmp.Ge, None)

    def starved(self) -> Starved | None:
        """What a world that has stopped left without a core."""
        if self.free or not self._ready:
            return None
        rank = self.cells.rank
        return Starved(
            rank, self.size, tuple((lane, job.name) for lane, job in sorted(self._held.items())),
            tuple((job.name, *job.at) for job in self._ready),
        )


def _ended(_block: int) -> None:
    return None
