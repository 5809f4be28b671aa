"""The story *load hangs*: a load does not come to its end within its time limit (virtual seconds).

Told apart by the workers: one that is inside a disk operation since long; none that is left; or idle ones
and nothing queued, although the task is not done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import torch
from msgspec import Meta

from harness import Scenario, SimulatedDisk, World, mutant
from scenarios.store.stories import Stories, Symptom, Workers, block_ids, idle, logged, opened

BYTES = 512
LIMIT_MS = 30_000


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """blocks: of the load."""

    blocks: Annotated[int, Meta(ge=1, le=8)] = 3


@dataclass(frozen=True, slots=True)
class Stuck:
    """A load that timed out, and the workers at that time."""

    rank: int
    code: int
    left: int
    alive: int
    queued: int
    taken: int
    ended: int
    inside: tuple[str, float] | None
    now: float
    log: tuple[str, ...]

    def symptom(self) -> Symptom:
        """What it is, and why."""
        message = (
            f"rank {self.rank}'s load is not done after {LIMIT_MS / 1000:g} s: wait gives {self.code},"
            f" check says that {self.left} blocks are left"
        )
        workers = f"{self.alive} workers left, {self.queued} jobs queued"
        jobs = f"{self.taken} jobs taken, {self.ended} ended"
        seen = (workers, jobs, *(f"its log: {line}" for line in self.log))
        if self.inside is not None:
            what, since = self.inside
            told = f"a worker is inside {what} since {self.now - since:g} s"
            return Symptom("load_hangs", self.rank, message, (told, *seen), "endless_io")
        if not self.alive:
            return Symptom("load_hangs", self.rank, message, seen, "worker_died")
        told = "every worker is idle, and the load is in no queue"
        return Symptom("load_hangs", self.rank, message, (told, *seen), "lost_task")


@dataclass(slots=True)
class Loads:
    """The loads that hang, by rank."""

    stuck: list[Stuck] = field(default_factory=list)

    def symptoms(self) -> Iterator[Symptom]:
        """One a load."""
        return (one.symptom() for one in self.stuck)


class Disk(SimulatedDisk):
    """A simulated disk whose reads go through `read`."""

    workers: Workers
    armed = False

    def pread(self, fd: int, view: memoryview, offset: int) -> int:
        """Read, as the story has it."""
        if self.armed:
            read(self.workers, offset)
        return super().pread(fd, view, offset)


class Queue(Workers):
    """Workers to which jobs go through `take` and `live`."""

    armed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job, as the story has it."""
        if not self.armed or take(self):
            super().submit(job)

    def step(self) -> bool:
        """Run a job, as the story has it."""
        if self.armed and self.jobs and self.alive and not live(self):
            self.jobs.pop(0)
            self.taken += 1
            self.alive -= 1
        return super().step()


def read(workers: Workers, offset: int) -> None:
    """What a read does before it reads."""


def take(workers: Workers) -> bool:
    """Whether the queue keeps a job."""
    return True


def live(workers: Workers) -> bool:
    """Whether a worker that takes a job is still alive."""
    return True


def _host(world: World, params: Load) -> Loads:
    loads = Loads()
    ids = block_ids("a prompt", params.blocks)
    for rank in range(world.size):
        world.dispatch(idle, device=rank)
        workers = Queue()
        disk = Disk(clock=workers.time)
        disk.workers = workers
        store = opened(disk, workers, workers=1)
        data = torch.arange(params.blocks * BYTES, dtype=torch.int32).to(torch.uint8)
        store.wait(store.dump(ids, 0, data.reshape(params.blocks, BYTES)))
        store.commit(ids, [True] * params.blocks)
        disk.armed = workers.armed = True
        task = store.load(ids, 0, torch.zeros(params.blocks, BYTES, dtype=torch.uint8))
        with logged() as log:
            code = store.wait(task, LIMIT_MS)
        _, done = store.check(task)
        if not done:
            left = sum(status is None for status in task.statuses)
            loads.stuck.append(
                Stuck(
                    rank, code, left, workers.alive, len(workers.jobs), workers.taken, workers.ended,
                    workers.inside, workers.now(), tuple(log),
                )
            )
        disk.armed = workers.armed = False
        workers.close()
    return loads


@mutant(of=live, expects="store/load_hangs", ranks=1)
def worker_died(workers: Workers) -> bool:
    """The worker dies when it has taken the job.

    Finding: store/load_hangs. Smallest world: 1.
    """
    return False


@mutant(of=take, expects="store/load_hangs", ranks=1)
def lost_task(workers: Workers) -> bool:
    """The queue loses the job.

    Finding: store/load_hangs. Smallest world: 1.
    """
    return False


@mutant(of=read, expects="store/load_hangs", ranks=1)
def endless_io(workers: Workers, offset: int) -> None:
    """A read never returns, as on a mount whose server is gone.

    Finding: store/load_hangs. Smallest world: 1.
    """
    workers.hang(f"pread at byte {offset}")


story = Scenario(
    name="store.story_load_hangs", host=_host, params=Load, ranks=(1, 4), checkers=(Stories(),),
    mutants={one.name: one for one in (worker_died, lost_task, endless_io)},
    doc="Troubleshooting: a load does not end.",
)
